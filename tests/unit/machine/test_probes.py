"""The parts of probes that can be wrong without a clock: windows, sizes, counts, devices."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from ironlaw.machine import bandwidth, gpu, matmul, paging, runner

MIB = 1 << 20


def test_windows_of_one_thread_give_the_fast_quantile():
    """Ten chunks of 1 MiB at 1 MiB/ms, two of them held up tenfold: the quantile sees the speed, not the average."""
    ends, now = [0.0], 0.0
    for n in range(20):
        now += 0.010 if n in (4, 5) else 0.001
        ends.append(now)
    found = bandwidth.window_quantile([ends], [MIB] * 20)
    assert found == pytest.approx(MIB / 0.001, rel=0.01)
    assert 20 * MIB / now < 0.6 * found


def test_threads_that_run_together_add_up():
    together = [[0.001 * n for n in range(21)]] * 2
    assert bandwidth.window_quantile(together, [MIB] * 20) == pytest.approx(2 * MIB / 0.001)


def test_threads_that_take_turns_do_not_add_up():
    """Each moves 1 MiB/ms in its own half of the time, waiting in the other: together never above 1 MiB/ms."""
    first, second = [0.0], [0.0]
    for n in range(20):
        first.append((2 * (n // 2) * 2 + n % 2 + 1) * 0.001)
        second.append((2 * (n // 2) * 2 + 2 + n % 2 + 1) * 0.001)
    found = bandwidth.window_quantile([first, second], [MIB] * 20)
    assert found < 1.35 * MIB / 0.001


def test_a_pass_in_which_threads_ran_apart_says_nothing():
    early, late = [0.001 * n for n in range(21)], [0.015 + 0.001 * n for n in range(21)]
    assert bandwidth.window_quantile([early, late], [MIB] * 20) is None


def test_chunks_cover_the_share():
    assert bandwidth.chunk_sizes(64 * MIB) == [bandwidth.CHUNK_BYTES] * 32
    assert bandwidth.chunk_sizes(3 * MIB) == [18 * MIB] * 16, "a small share is walked six times a chunk"
    assert bandwidth.chunk_sizes(64 * MIB, threads=64) == [8 * MIB] * 8, "many threads take longer ones"
    assert sum(bandwidth.chunk_sizes(50 * MIB + 7)) == pytest.approx(50 * MIB, rel=0.01)


def test_dram_is_read_beyond_every_cache(monkeypatch):
    monkeypatch.setattr(bandwidth.environment, "memory_bytes", lambda: 64 << 30)
    assert bandwidth.dram_bytes(32 * MIB) == 256 * MIB
    assert bandwidth.dram_bytes(384 * MIB) == 1536 * MIB
    assert bandwidth.dram_bytes(None, threads=64) == 4096 * MIB
    monkeypatch.setattr(bandwidth.environment, "memory_bytes", lambda: 512 * MIB)
    assert bandwidth.dram_bytes(32 * MIB) == 64 * MIB, "a small container is not pushed into its limit"


def test_copy_and_read_do_what_they_count():
    import numpy as np

    source, target = np.full(100, 7, np.uint8), np.zeros(100, np.uint8)
    bandwidth.copy(source, target)
    assert (target == 7).all()


def test_passes_return_one_rate_a_pass_for_several_threads():
    threads = min(2, len(os.sched_getaffinity(0)))
    rates = bandwidth.passes(bandwidth.read, 4 * MIB, threads, 0.0)
    assert len(rates) <= bandwidth.MIN_PASSES - 1
    assert all(rate > 1e6 for rate in rates)
    assert len(bandwidth.passes(bandwidth.read, 4 * MIB, 1, 0.0)) == bandwidth.MIN_PASSES - 1


@pytest.mark.parametrize(
    ("rate", "largest"),
    [(1e11, 512), (1e8, 64), (2e13, 4096)],
    ids=["fp32", "emulated", "matrix unit"],
)
def test_size_grows_only_while_it_fits(rate, largest):
    tried = []

    def run_s(size):
        tried.append(size)
        return 2.0 * size**3 / rate

    sizes = matmul.sizes_that_fit(run_s, 0.2)
    assert sizes[-1] == largest
    assert sum(2.0 * n**3 / rate for n in tried) < 0.2, "exploring itself stays within the budget"


@pytest.mark.parametrize("dtype", matmul.DTYPES)
def test_product_multiplies_in_its_dtype(dtype, monkeypatch):
    import torch

    pair = matmul.operands(dtype, 32)
    monkeypatch.setattr(matmul, "operands", lambda *_: pair)
    found = matmul.product(dtype, 32)()
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int32}
    assert found.dtype == kinds[dtype]
    exact = pair[0].double() @ pair[1].double()
    assert (found.double() - exact).abs().max() <= 1e-2 * exact.abs().max()


def test_emulated_dtype_says_so():
    from ironlaw.machine.gate import ceiling

    fast = ceiling("matmul", "FLOP/s", [100.0] * 3, dtype="fp32", note="n")
    slow = ceiling("matmul", "FLOP/s", [4.0] * 3, dtype="fp16", note="n")
    marked = matmul._mark_emulated([fast, slow, "a note"])
    shaken = dataclasses.replace(slow, high=60.0)
    assert matmul._mark_emulated([fast, shaken])[1] == shaken, "its interval reaches half of fp32: nothing is claimed"
    assert [getattr(c, "note", c) for c in marked] == ["n", "n; below half of fp32: no fast kernel here", "a note"]


def _block_faults(variables):
    code = "import json; from ironlaw.machine.paging import block_faults; print(json.dumps(block_faults(4)))"
    env = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")} | variables
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="settings of glibc")
def test_allocator_variables_keep_the_block():
    pages = paging.BLOCK_BYTES // os.sysconf("SC_PAGE_SIZE")
    assert min(_block_faults({})) >= pages / 512, "given back: at least one fault a huge page"
    assert sorted(_block_faults(paging.KEEPING))[2] < 64


def test_fault_costs_something_and_less_than_a_disk():
    (found,) = paging.FaultProbe().measure(1, 0.0)
    assert 20e-9 < found.value < 200e-6


def test_every_probe_has_the_name_it_is_found_by():
    for name in runner.PROBES:
        assert runner.probe(name).name == name


def test_device_probe_on_a_stand_in_device_with_its_own_clock():
    """The host stands in for a device that takes 1 ms for whatever it is given."""
    found = gpu.measure_device("cpu", lambda call: (call(), 1e-3)[1], seconds=0.0, size=32, region=1 << 16)
    by_name = {(c.name, c.dtype): c for c in found if not isinstance(c, str)}
    assert by_name["device_matmul", "fp32"].value == pytest.approx(2 * 32**3 / 1e-3)
    assert by_name["device_memory", None].value == pytest.approx(2 * (1 << 16) / 1e-3)
    assert by_name["device_launch", None].value > 1e-8
    assert not any(c.name == "matmul" for c in by_name.values()), "no host name"


def test_device_probe_without_a_device_is_a_note():
    import torch

    if torch.accelerator.is_available():
        pytest.skip("there is one")
    assert gpu.DeviceProbe().measure(1, 0.1) == ("gpu: torch cannot use an accelerator here",)
