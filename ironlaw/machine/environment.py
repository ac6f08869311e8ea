"""Where results hold: the identity of this host, and the conditions of the moment.

*Identity* (processor, instruction sets, usable cores, memory, versions) is part of every key: two
results are compared only when it is equal. *Conditions* (load, governor, clock, thread and allocator
variables) are stored beside a result. Versions come from package metadata, so that nothing heavy is
imported; the core count is what this process may use, not what the host owns: a container with half
a CPU has one. Unknown is None or left out; on macOS what ``sysctl`` says stands in for /proc.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ironlaw.machine import procfs
from ironlaw.records import Conditions, Environment, Identity, Pairs

VARIABLE_PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "ONEDNN_", "DNNL_", "VECLIB_")
VARIABLE_NAMES = ("ATEN_CPU_CAPABILITY", "GLIBC_TUNABLES", "LD_PRELOAD", "NUMEXPR_NUM_THREADS")
PACKAGES = {
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "openvino": ("openvino",),
    "numpy": ("numpy",),
}
_MAC_FLAGS = {
    "hw.optional.avx2_0": "avx2",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.AdvSIMD": "neon",
    "hw.optional.neon": "neon",
    "hw.optional.arm.FEAT_FP16": "asimdhp",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
    "hw.optional.arm.FEAT_SME": "sme",
}
_PRELOADED = ("jemalloc", "tcmalloc", "mimalloc", "tbbmalloc")


def identity() -> Identity:
    """What must be equal for two results to be compared."""
    system = os.uname()
    cpuinfo = procfs.fields(procfs.first_block(Path("/proc/cpuinfo")))
    mac = _sysctl() if sys.platform == "darwin" else {}
    return Identity(
        cpu=mac.get("machdep.cpu.brand_string") or procfs.cpu_model(cpuinfo, system.machine),
        architecture=system.machine,
        isa=mac_isa(mac) if mac else procfs.isa_flags(cpuinfo),
        cores=usable_cores(),
        memory_bytes=memory_bytes(),
        os=" ".join(filter(None, (system.sysname, system.release, _libc()))),
        python=".".join(str(part) for part in sys.version_info[:3]),
        accelerators=_accelerators(),
        versions=_versions(),
    )


def conditions(variables: Mapping[str, str] | None = None) -> Conditions:
    """What holds now in this process; ``variables`` defaults to its environment."""
    variables = os.environ if variables is None else variables
    cpu = usable_cpus()[0]
    cpuinfo = procfs.fields(procfs.first_block(Path("/proc/cpuinfo")))
    return Conditions(
        load_1m=os.getloadavg()[0],
        governor=procfs.governor(cpu=cpu),
        frequency_hz=procfs.frequency_hz(cpuinfo, cpu=cpu),
        variables=tuple(sorted((k, v) for k, v in variables.items() if _relevant(k))),
        allocator=_allocator(variables),
    )


def environment() -> Environment:
    return Environment(identity=identity(), conditions=conditions())


def usable_cpus() -> tuple[int, ...]:
    """Numbers of the logical processors that this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def spread_cpus(count: int, root: Path = Path("/")) -> tuple[int, ...]:
    """``count`` usable processors (all of them when there are fewer), one of each core before siblings.

    From the highest number down, since interrupts and the rest of the system prefer the first.
    """
    seen: dict[str, int] = {}
    ranked = []
    for cpu in reversed(usable_cpus()):
        core = procfs.core_of(cpu, root)
        ranked.append((seen.setdefault(core, 0), -cpu))
        seen[core] += 1
    return tuple(-cpu for _, cpu in sorted(ranked)[:count])


def usable_cores(root: Path = Path("/")) -> int:
    """Threads that can run at once: the affinity, or the control group's quota rounded down (at least 1)."""
    quota = procfs.cpu_quota(root)
    allowed = len(usable_cpus())
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def memory_bytes() -> int:
    """Memory that this process may use: the physical, or the control group's limit."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        physical = int(_sysctl().get("hw.memsize", "0"))
    limit = procfs.memory_limit()
    return physical if limit is None else min(physical, limit)


def mac_isa(values: Mapping[str, str]) -> tuple[str, ...]:
    """Instruction sets from ``sysctl hw.optional``, by the names that Linux gives them."""
    found = {flag for key, flag in _MAC_FLAGS.items() if values.get(key) == "1"}
    return tuple(f for f in (*procfs.X86_FLAGS, *procfs.ARM_FLAGS) if f in found)


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _relevant(name: str) -> bool:
    return name.startswith(VARIABLE_PREFIXES) or name in VARIABLE_NAMES


def _allocator(variables: Mapping[str, str]) -> str:
    preloaded = variables.get("LD_PRELOAD", "") + variables.get("DYLD_INSERT_LIBRARIES", "")
    return next((name for name in _PRELOADED if name in preloaded), _libc() or "system")


@cache
def _versions() -> Pairs:
    import importlib.metadata as metadata

    found = []
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            try:
                found.append((name, metadata.version(distribution)))
                break
            except metadata.PackageNotFoundError:
                continue
    return tuple(found)


@cache
def _sysctl() -> dict[str, str]:
    """``sysctl`` of macOS as a mapping; {} where the command is missing or fails."""
    command = ["/usr/sbin/sysctl", "machdep.cpu.brand_string", "hw.memsize", "hw.optional"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (line.partition(":") for line in done.stdout.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@cache
def _accelerators() -> tuple[str, ...]:
    """Names of NVIDIA devices through NVML; () without its driver. No CUDA context is made."""
    if not any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")):
        return ()
    import ctypes

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ()
    if nvml.nvmlInit_v2() != 0:
        return ()
    try:
        count = ctypes.c_uint(0)
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return tuple(filter(None, (_device_name(nvml, index) for index in range(count.value))))
    finally:
        nvml.nvmlShutdown()


def _device_name(nvml: Any, index: int) -> str:
    import ctypes

    handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return ""
    nvml.nvmlDeviceGetName(handle, name, 96)
    return name.value.decode(errors="replace")
