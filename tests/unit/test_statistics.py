"""The ruler: intervals must cover, percentiles must refuse, the floor must show a bias."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ironlaw.measure.statistics import claim_floor, gain_of, launch_interval, percentiles, samples_needed


@pytest.mark.parametrize(("launch_sd", "block_sd"), [(0.02, 0.02), (0.03, 0.005), (0.0, 0.03)])
def test_interval_of_equal_things_covers_nothing_changed(launch_sd: float, block_sd: float) -> None:
    """Over 400 simulated A/A comparisons at most 8 % exclude 1, whatever the mix of launch and block noise."""
    random = np.random.default_rng(1)
    misses = 0
    for seed in range(400):
        launches = [random.normal(random.normal(0, launch_sd), block_sd, 10).tolist() for _ in range(5)]
        low, _, high = launch_interval(launches, seed=seed)
        misses += not low <= 0 <= high
    assert misses <= 32


def test_interval_finds_a_real_gain() -> None:
    random = np.random.default_rng(2)
    launches = [random.normal(math.log(1.3) + random.normal(0, 0.01), 0.02, 10).tolist() for _ in range(5)]
    gain = gain_of(launches, floor=1.01, settled=True)
    assert gain.low < 1.3 < gain.high
    assert gain.proven


def test_launches_that_disagree_widen_the_interval() -> None:
    """Blocks agree within each launch, launches do not: the interval must show the launches."""
    launches = [[0.10 + 0.001 * i for i in range(10)], [0.30] * 10, [0.20] * 10]
    low, middle, high = launch_interval(launches)
    assert middle == pytest.approx(0.2015, abs=1e-3)
    assert high - low > 0.4  # Student's quantile at two degrees of freedom is 4.30, the standard error 0.058


def test_student_interval_by_hand() -> None:
    """Three launches of one value each side: mean +- 4.3027 * s / sqrt(3)."""
    launches = [[0.0] * 5, [0.1] * 5, [0.2] * 5]
    low, middle, high = launch_interval(launches)
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (low, middle, high) == pytest.approx((0.1 - half, 0.1, 0.1 + half), rel=1e-5)


def test_few_launches_never_prove() -> None:
    gain = gain_of([[0.5] * 10, [0.5] * 10], floor=1.0, settled=True)
    assert gain.low > 1.0
    assert not gain.proven


def test_floor_shows_a_bias_between_equal_things() -> None:
    """If A is 3 % faster than A (a position effect), nothing under 3 % may be claimed."""
    floor = claim_floor([[0.03, 0.031, 0.029]] * 4)
    assert floor >= math.exp(0.03) - 1e-3


def test_one_launch_needs_blocks() -> None:
    with pytest.raises(ValueError, match="no blocks"):
        launch_interval([[]])


def test_samples_needed_are_loadgens() -> None:
    """MLPerf LoadGen's early stopping: 459 samples for p99 with none over, 662 with one."""
    assert samples_needed(0.99) == 459
    assert samples_needed(0.99, over=1) == 662
    assert samples_needed(0.90) == 44


def test_percentiles_refuse_what_the_sample_cannot_support() -> None:
    few, many = percentiles([0.001] * 458), percentiles(np.linspace(0.001, 0.002, 459).tolist())
    assert few.p99 is None
    assert "p99 needs 459 samples, there are 458" in few.refused
    assert many.p99 == pytest.approx(0.00199, rel=1e-3)
    assert many.refused == ""
    assert percentiles([1.0, 2.0, 9.0]).p50 == 2.0
