"""Faults of a warm call against what the allocator must do, and against the system's own count in a fresh process."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from ironlaw.measure import kernel_workspace, page_faults
from ironlaw.measure.c_allocator import Give, Take
from ironlaw.measure.page_faults import STEADY, call_faults, steady_faults

MB, PAGE = 2**20, 4096


def pair(size):
    return [Take("x", size), Take("y", size), Give("x"), Give("y")]


def test_what_is_above_every_threshold_is_mapped_and_faulted_anew():
    big = 64 * MB
    assert steady_faults([pair(big)] * 6, MB) == pytest.approx(2 * big / PAGE, rel=0.001)


def test_what_stays_on_the_heap_faults_once():
    traffics = [pair(MB // 4)] * 12
    assert steady_faults(traffics, MB) == 0.0
    assert steady_faults(traffics[:1], MB) == pytest.approx(MB / 2 / PAGE, rel=0.02)  # of one call it is all


def test_more_than_the_trim_threshold_at_the_top_goes_back_and_is_faulted_again():
    many = [Take(i, MB // 2) for i in range(8)]
    traffics = [[*many, *(Give(i) for i in range(8))]] * 8
    assert steady_faults(traffics, MB) > 0.5 * 4 * MB / PAGE  # 4 MB free at the top, of which 2 MB may stay
    assert steady_faults(traffics, 3 * MB) == 0.0


def test_only_the_last_calls_count():
    warm, steady = [pair(64 * MB)] * 3, [pair(MB // 4)] * STEADY
    assert steady_faults([*warm, *steady], MB) < 2 * MB / PAGE


def test_a_small_model_keeps_its_memory_and_a_large_one_does_not():
    small = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    found = call_faults(lambda: small(torch.ones(4, 64)), small.parameters())
    assert found is not None
    assert found.high < 10
    x = torch.ones(1, 1, 4096, 4096)  # 64 MB: each result is mapped
    found = call_faults(lambda: torch.relu(x), [], [x])
    assert found is not None
    assert found.low < x.nbytes / PAGE < found.high
    assert found.value == pytest.approx(x.nbytes / PAGE, rel=0.01)


def test_other_c_libraries_are_not_known(monkeypatch):
    monkeypatch.setattr(page_faults.platform, "libc_ver", lambda: ("", ""))
    assert call_faults(lambda: None, []) is None


PROGRAM = """
import resource
import torch
from torch import nn
{model}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
with torch.inference_mode():
    for _ in range(10):
        model(x)
    before = faults()
    for _ in range(20):
        model(x)
    print((faults() - before) / 20)
"""
WIDE = """
x = torch.ones(4, 32, 64, 64)
model = nn.Sequential(*[part for _ in range(4) for part in (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())]).eval()
"""
NARROW = """
x = torch.ones(1, 16, 32, 32)
model = nn.Sequential(*[part for _ in range(4) for part in (nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())]).eval()
"""


@pytest.mark.slow
@pytest.mark.skipif(page_faults.platform.libc_ver()[0] != "glibc", reason="the allocator of glibc")
@pytest.mark.parametrize(("model", "none"), [(NARROW, True), (WIDE, False)])
def test_faults_are_those_that_the_system_counts(model, none):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(model=model)], capture_output=True, text=True, check=True
    )
    counted = float(done.stdout)
    names: dict[str, object] = {"torch": torch, "nn": nn}
    exec(model, names)
    network, x = names["model"], names["x"]
    found = call_faults(lambda: network(x), network.parameters(), [x])
    assert found is not None
    assert found.low <= counted + 20
    assert counted <= found.high + 20
    assert (found.value < 20) is none


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize(("kernel", "side"), [(1, 8), (1, 64), (3, 8), (3, 64), (5, 8)])
def test_the_kernel_of_a_convolution_is_the_one_that_torch_takes(threads, batch, kernel, side):
    x, weight = torch.ones(batch, 16, side, side), torch.ones(16, 16, kernel, kernel)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad(), torch.profiler.profile() as seen:
            torch.nn.functional.conv2d(x, weight)
        found = kernel_workspace._Shape(x, weight, ([1, 1], [0, 0], [1, 1], False, [0, 0], 1))
    finally:
        torch.set_num_threads(before)
    assert found.onednn is ("aten::mkldnn_convolution" in {event.name for event in seen.events()})
