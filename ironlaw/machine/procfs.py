"""What Linux says of its processors, memory and limits, parsed from the texts of /proc and /sys.

Every function takes the text, or a file system root, so that texts recorded on machines that we
do not have (AMX, ARM, a container with half a CPU) are parsed in tests exactly as here. Only the
first block of ``/proc/cpuinfo`` is read: with hundreds of processors the whole file costs
milliseconds. What a text does not say is ``None``; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

# fmt: off
X86_FLAGS = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx_vnni_int8", "avx_ne_convert",
    "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_int8", "amx_bf16", "amx_fp16",
)
ARM_FLAGS = ("neon", "asimdhp", "asimddp", "sve", "sve2", "i8mm", "bf16", "sme", "sme2")
# fmt: on
_ARM_PARTS = {
    # MIDR part numbers, from the Arm technical reference manuals (implementer 0x41).
    ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
}


def fields(text: str) -> dict[str, str]:
    """The first block of ``key : value`` lines (up to the first empty line), first value wins."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            if found:
                break
            continue
        found.setdefault(key.strip(), value.strip())
    return found


def first_block(path: Path) -> str:
    """The file up to its first empty line; "" where there is no such file."""
    lines: list[str] = []
    try:
        with path.open() as file:
            for line in file:
                if not line.strip() and lines:
                    break
                lines.append(line)
    except OSError:
        return ""
    return "".join(lines)


def cpu_model(cpuinfo: Mapping[str, str], architecture: str) -> str:
    """The processor's name; on ARM, which gives none, its implementer and part."""
    if name := cpuinfo.get("model name") or cpuinfo.get("uarch"):
        return " ".join(name.split())
    implementer, part = cpuinfo.get("CPU implementer"), cpuinfo.get("CPU part")
    if implementer and part:
        return _ARM_PARTS.get((implementer, part), f"{architecture} implementer {implementer} part {part}")
    return architecture


def isa_flags(cpuinfo: Mapping[str, str]) -> tuple[str, ...]:
    """The instruction sets that arithmetic depends on, by the names of Linux, in a fixed order."""
    if "flags" in cpuinfo:
        flags = set(cpuinfo["flags"].split())
        return tuple(f for f in X86_FLAGS if f in flags)
    flags = set(cpuinfo.get("Features", "").split())
    if "asimd" in flags:
        flags.add("neon")
    return tuple(f for f in ARM_FLAGS if f in flags)


def memory_total(meminfo: str) -> int | None:
    """Physical memory in bytes, from ``/proc/meminfo``."""
    amount = fields(meminfo).get("MemTotal", "").split()
    return int(amount[0]) * 1024 if amount else None


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processors' worth of time that the control group allows, e.g. 0.5; None without a limit.

    The tightest limit from this group up to the mount's root counts (cgroup v2 ``cpu.max``, v1
    ``cpu.cfs_quota_us`` over ``cpu.cfs_period_us``).
    """
    quotas = []
    for folder in _groups(root, "cpu"):
        if text := _read(folder / "cpu.max"):
            allowed, _, period = text.partition(" ")
            if allowed != "max":
                quotas.append(int(allowed) / int(period or 100_000))
        elif (quota := _read(folder / "cpu.cfs_quota_us")) and int(quota) > 0:
            quotas.append(int(quota) / int(_read(folder / "cpu.cfs_period_us") or 100_000))
    return min(quotas, default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that the control group allows; None without a limit (v1 writes a number near 2^63)."""
    limits = []
    for folder in _groups(root, "memory"):
        text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        if text and text != "max" and int(text) < 1 << 60:
            limits.append(int(text))
    return min(limits, default=None)


def sysfs_caches(root: Path = Path("/"), cpu: int = 0) -> dict[int, int]:
    """Data cache sizes in bytes by level, as the system reports them; {} where it does not."""
    found: dict[int, int] = {}
    for index in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
        kind, level, size = (_read(index / name) for name in ("type", "level", "size"))
        if kind in ("Data", "Unified") and level and size:
            scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1)
            found[int(level)] = int(size.rstrip("KMG")) * scale
    return found


def core_of(cpu: int, root: Path = Path("/")) -> str:
    """The processors that share this one's core, as sysfs lists them (``0,64``); itself where it does not."""
    return _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def governor(root: Path = Path("/"), cpu: int = 0) -> str | None:
    return _read(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")


def frequency_hz(cpuinfo: Mapping[str, str], root: Path = Path("/"), cpu: int = 0) -> float | None:
    """The clock now: sysfs first, else ``cpu MHz`` (in virtual machines the nominal one)."""
    if khz := _read(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"):
        return float(khz) * 1e3
    mhz = cpuinfo.get("cpu MHz")
    return float(mhz) * 1e6 if mhz else None


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """This process's group and its parents, for the controller; the unified hierarchy last."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        number, names, path = line.split(":", 2)
        if controller in names.split(","):
            bases = [root / "sys/fs/cgroup" / n for n in (names, controller)]
        elif number == "0":
            bases = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        else:
            continue
        for base in bases:
            folder = base / path.strip("/")
            while folder != base:
                yield folder
                folder = folder.parent
            yield base


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
