"""Texts of /proc and /sys recorded on other machines, and this one's own environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ironlaw.machine import environment, procfs
from ironlaw.records import Conditions, Identity, from_json, to_json

SAPPHIRE_RAPIDS = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R)  Platinum 8480+
cpu MHz\t\t: 2000.000
cache size\t: 107520 KB
flags\t\t: fpu vme sse4_2 fma avx f16c avx2 avx512f avx512dq avx512bw avx512vl avx_vnni avx512_bf16 \
avx512_vnni avx512_fp16 amx_bf16 amx_tile amx_int8 arch_capabilities
bugs\t\t: spectre_v1 mmio_unknown

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
NEOVERSE_V1 = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes atomics fphp asimdhp cpuid asimdrdm asimddp sha512 sve i8mm bf16 rng
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1

processor\t: 1
"""
MEMINFO = "MemTotal:       16303040 kB\nMemFree:         123 kB\nMemAvailable: 5 kB\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_x86_with_amx():
    cpu = procfs.fields(SAPPHIRE_RAPIDS)
    assert procfs.cpu_model(cpu, "x86_64") == "Intel(R) Xeon(R) Platinum 8480+"
    flags = procfs.isa_flags(cpu)
    assert {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16"} < set(flags)
    assert [f for f in flags if f.startswith("amx")] == ["amx_tile", "amx_int8", "amx_bf16"]
    assert "vme" not in flags
    assert procfs.frequency_hz(cpu, Path("/nowhere")) == 2.0e9


def test_arm_has_neon_and_a_name_from_its_part():
    cpu = procfs.fields(NEOVERSE_V1)
    assert procfs.cpu_model(cpu, "aarch64") == "Neoverse-V1"
    assert procfs.isa_flags(cpu) == ("neon", "asimdhp", "asimddp", "sve", "i8mm", "bf16")
    unknown = {"CPU implementer": "0xc0", "CPU part": "0xac3"}
    assert procfs.cpu_model(unknown, "aarch64") == "aarch64 implementer 0xc0 part 0xac3"
    assert procfs.frequency_hz(cpu, Path("/nowhere")) is None


def test_first_block_ends_at_the_empty_line(tmp_path):
    tree(tmp_path, {"cpuinfo": SAPPHIRE_RAPIDS})
    assert "another" not in procfs.first_block(tmp_path / "cpuinfo")
    assert procfs.first_block(tmp_path / "none") == ""


def test_meminfo():
    assert procfs.memory_total(MEMINFO) == 16303040 * 1024
    assert procfs.memory_total("") is None


def test_cgroup_v2_half_a_cpu_is_one_core(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/memory.max": "536870912\n",
        },
    )
    assert procfs.cpu_quota(root) == 0.5
    assert procfs.memory_limit(root) == 512 << 20
    assert environment.usable_cores(root) == 1


def test_cgroup_v2_tightest_limit_of_the_parents_counts(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod1/app\n",
            "sys/fs/cgroup/kubepods/pod1/app/cpu.max": "max 100000\n",
            "sys/fs/cgroup/kubepods/pod1/app/memory.max": "max\n",
            "sys/fs/cgroup/kubepods/pod1/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/kubepods/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/kubepods/memory.max": "1073741824\n",
        },
    )
    assert procfs.cpu_quota(root) == 1.5
    assert procfs.memory_limit(root) == 1 << 30
    assert environment.usable_cores(root) == 1, "one and a half processors run one thread without throttling"


def test_cgroup_v1(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "12:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/docker/a\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/a/cpu.cfs_quota_us": "250000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n",
            "sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert procfs.cpu_quota(root) == 2.5
    assert procfs.memory_limit(root) == 2 << 30


def test_no_limits(tmp_path):
    root = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert procfs.cpu_quota(root) is None
    assert procfs.memory_limit(root) is None
    assert environment.usable_cores(root) == len(os.sched_getaffinity(0))
    assert procfs.cpu_quota(tmp_path / "nowhere") is None


def test_sysfs_caches_leave_out_instructions(tmp_path):
    base = "sys/devices/system/cpu/cpu0/cache/index"
    files = {}
    for n, (kind, level, size) in enumerate(
        [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2048K"), ("Unified", 3, "105M")]
    ):
        files |= {f"{base}{n}/type": kind, f"{base}{n}/level": str(level), f"{base}{n}/size": size}
    assert procfs.sysfs_caches(tree(tmp_path, files)) == {1: 48 << 10, 2: 2 << 20, 3: 105 << 20}
    assert procfs.sysfs_caches(tmp_path / "none") == {}


def test_threads_go_to_separate_cores_before_siblings(tmp_path, monkeypatch):
    """Four processors on two cores, siblings 0,2 and 1,3: two threads get a core each."""
    base = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    root = tree(tmp_path, {base.format(n): f"{n % 2},{n % 2 + 2}\n" for n in range(4)})
    monkeypatch.setattr(environment, "usable_cpus", lambda: (0, 1, 2, 3))
    assert environment.spread_cpus(2, root) == (3, 2)
    assert environment.spread_cpus(4, root) == (3, 2, 1, 0)
    assert environment.spread_cpus(9, root) == (3, 2, 1, 0)
    monkeypatch.setattr(environment, "usable_cpus", lambda: (0, 2, 3))
    assert environment.spread_cpus(2, root) == (3, 2)
    monkeypatch.setattr(environment, "usable_cpus", lambda: (0, 2))
    assert environment.spread_cpus(2, root) == (2, 0), "no second core: the sibling must do"
    monkeypatch.setattr(environment, "usable_cpus", lambda: (1, 2, 3))
    assert environment.spread_cpus(2, root) == (3, 2)
    monkeypatch.setattr(environment, "usable_cpus", lambda: (0, 1, 3))
    assert environment.spread_cpus(2, root) == (3, 0), "1 is the sibling of 3"


def test_macos_flags_take_linux_names():
    m2 = {"hw.optional.neon": "1", "hw.optional.arm.FEAT_BF16": "1", "hw.optional.arm.FEAT_SME": "0"}
    assert environment.mac_isa(m2) == ("neon", "bf16")


def test_conditions_hold_only_thread_and_allocator_variables():
    now = environment.conditions(
        {"OMP_NUM_THREADS": "2", "MALLOC_TOP_PAD_": "1", "HOME": "/root", "LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}
    )
    assert dict(now.variables) == {
        "LD_PRELOAD": "/usr/lib/libjemalloc.so.2",
        "MALLOC_TOP_PAD_": "1",
        "OMP_NUM_THREADS": "2",
    }
    assert now.allocator == "jemalloc"
    assert from_json(Conditions, to_json(now)) == now


def test_identity_is_stable_and_follows_the_affinity():
    first = environment.identity()
    assert environment.identity().digest == first.digest
    assert from_json(Identity, to_json(first)) == first
    assert dict(first.versions)["torch"].startswith("2.")
    assert 1 <= first.cores <= len(os.sched_getaffinity(0))
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert environment.usable_cpus() == (min(allowed),)
        assert environment.identity().cores == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize("heavy", ["torch", "numpy", "onnxruntime", "openvino", "psutil"])
def test_environment_imports_no_framework(heavy):
    code = f"import sys, ironlaw.machine.environment as e; e.environment(); sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
