"""Knees of synthetic sweeps whose answer is known."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.machine.caches import match_levels, plateaus, sweep_sizes

SIZES = sweep_sizes(256 << 20)


def harmonic(size, levels, memory):
    """Bandwidth when the part of the working set that fits each level is read at its speed."""
    left, seconds = float(size), 0.0
    for capacity, rate in levels:
        part = min(left, capacity)
        seconds, left = seconds + part / rate, left - part
    return size / (seconds + left / memory)


def steps(size, levels, memory):
    return next((rate for capacity, rate in levels if size <= capacity), memory)


def test_sizes_are_pages_from_8_kib_to_the_end():
    assert SIZES[0] == 8 << 10
    assert SIZES[-1] == 256 << 20
    assert all(s % 4096 == 0 for s in SIZES)
    assert all(a < b for a, b in itertools.pairwise(SIZES))


def test_sharp_steps_are_found_within_a_step_of_the_sweep():
    levels = [(48 << 10, 300e9), (2 << 20, 150e9), (32 << 20, 90e9)]
    found = plateaus(SIZES, [steps(s, levels, 20e9) for s in SIZES])
    assert [p.bandwidth_bytes_per_s for p in found] == pytest.approx([300e9, 150e9, 90e9, 20e9])
    for plateau, (capacity, _) in zip(found, levels, strict=False):
        assert 1 / 1.5 < plateau.size_bytes / capacity < 1.5


def test_gradual_transition_is_one_knee_and_not_a_stair():
    """LRU over a random walk leaves its cache slowly: the slope between is no level of its own."""
    levels = [(16 << 20, 100e9)]
    found = plateaus(SIZES, [harmonic(s, levels, 20e9) for s in SIZES])
    assert len(found) == 2
    assert 16 << 20 < found[0].size_bytes < 64 << 20


def test_recorded_sweep_of_a_shared_last_level():
    """As measured on a guest with 32 KiB, 1 MiB and a shared 32 MiB: reading sees one knee, at the last level."""
    kib = [8, 12, 16, 24, 32, 44, 64, 92, 128, 180, 256, 364, 512, 724, 1024, 1448, 2048, 2896, 4096, 5792, 8192]
    kib += [11584, 16384, 23172, 32768, 46340, 65536, 92680, 131072, 185364, 262144]
    rates = [63, 78, 86, 96, 98, 93, 97, 101, 104, 104, 106, 107, 104, 96, 90, 87, 92, 91, 91, 92, 90]
    rates += [82, 73, 60, 48, 45, 35, 32, 31, 31, 31]
    found = plateaus([k << 10 for k in kib], [r * 1e9 for r in rates])
    assert len(found) == 2
    assert 16 << 20 < found[0].size_bytes < 48 << 20
    assert found[1].bandwidth_bytes_per_s == pytest.approx(31e9, rel=0.03)


def test_flat_sweep_has_no_cache():
    rng = random.Random(0)
    assert len(plateaus(SIZES, [30e9 * rng.uniform(0.96, 1.04) for _ in SIZES])) == 1


@settings(max_examples=60, deadline=None)
@given(
    l2=st.integers(17, 20).map(lambda n: 1 << n),
    l3=st.integers(22, 25).map(lambda n: 1 << n),
    ratio=st.floats(1.6, 4.0),
    seed=st.integers(0, 1000),
)
def test_two_levels_under_noise(l2, l3, ratio, seed):
    rng = random.Random(seed)
    levels, memory = [(l2, 100e9), (l3, 100e9 / ratio)], 100e9 / ratio**2
    found = plateaus(SIZES, [steps(s, levels, memory) * rng.uniform(0.95, 1.05) for s in SIZES])
    assert len(found) == 3
    for plateau, (capacity, rate) in zip(found, levels, strict=False):
        assert abs(math.log2(plateau.size_bytes / capacity)) < 0.6
        assert plateau.bandwidth_bytes_per_s == pytest.approx(rate, rel=0.08)


def test_a_knee_takes_the_nearest_reported_level():
    reported = {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}
    assert match_levels([24 << 20], reported) == [3]
    assert match_levels([900 << 10, 12 << 20], reported) == [2, 3]
    assert match_levels([30 << 10, 1 << 20, 40 << 20], reported) == [1, 2, 3]
    assert match_levels([1 << 20], {}) == [1]
    assert match_levels([], reported) == []
