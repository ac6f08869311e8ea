"""Verdicts on goals, geometric means and intervals against closed forms, scipy and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from benchmarks.arithmetic import clustered_interval, geometric_interval, geometric_mean, median_interval, met
from ironlaw.laws.shares import wilson


@pytest.mark.parametrize(
    ("value", "low", "high", "limits", "wanted"),
    [
        (0.99, 0.98, 1.00, {"at_least": 0.97}, True),
        (0.99, 0.96, 1.02, {"at_least": 0.97}, "unsettled"),
        (0.90, 0.89, 0.96, {"at_least": 0.97}, False),
        (0.90, 0.89, 0.97, {"at_least": 0.97}, "unsettled"),
        (0.97, 0.97, 0.97, {"at_least": 0.97}, True),
        (2, None, None, {"at_most": 2}, True),
        (3, None, None, {"at_most": 2}, False),
        (1, 1, 4, {"at_most": 2}, "unsettled"),
        (0.010, 0.005, 0.015, {"at_most": 0.02}, True),
        (0.30, 0.25, 0.35, {"at_most": 0.2}, False),
        (None, None, None, {"at_most": 2}, "unsettled"),
        (math.nan, None, None, {"at_least": 1}, "unsettled"),
    ],
)
def test_a_goal_needs_its_whole_interval_on_one_side(value, low, high, limits, wanted):
    assert met(value, low, high, **limits) == wanted


@pytest.mark.parametrize("limits", [{}, {"at_least": 1.0, "at_most": 2.0}])
def test_a_goal_has_one_limit(limits):
    with pytest.raises(ValueError, match="one limit"):
        met(1.0, None, None, **limits)


@given(st.floats(0.1, 10), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 10))
def test_at_least_and_at_most_mirror_each_other(value, below, above, limit):
    low, high = value - below, value + above
    assert met(value, low, high, at_least=limit) == met(-value, -high, -low, at_most=-limit)


@given(st.lists(st.floats(0.05, 20), min_size=1, max_size=12))
def test_geometric_mean_is_the_root_of_the_product(ratios):
    assert geometric_mean(ratios) == pytest.approx(math.prod(ratios) ** (1 / len(ratios)))
    assert geometric_mean([1 / r for r in ratios]) == pytest.approx(1 / geometric_mean(ratios))


@pytest.mark.parametrize("ratios", [[], [1.0, 0.0], [1.0, -2.0]])
def test_geometric_mean_refuses(ratios):
    with pytest.raises(ValueError, match="above zero"):
        geometric_mean(ratios)


def test_geometric_interval_shrinks_with_the_root_of_the_number():
    one = geometric_interval([(1.0, 1.2, 1.44)])
    assert one == pytest.approx((1.0, 1.2, 1.44))
    four = geometric_interval([(1.0, 1.2, 1.44)] * 4)
    assert four == pytest.approx((1.2 / 1.2**0.5, 1.2, 1.2 * 1.2**0.5))


def test_geometric_interval_covers_as_a_simulation_does():
    rng = np.random.default_rng(1)
    sigmas = np.array([0.02, 0.1, 0.05])
    draws = np.exp(rng.normal(0.3, sigmas, (200_000, 3)).mean(axis=1))
    low, _, high = geometric_interval(
        [(math.exp(0.3 - 1.96 * s), math.exp(0.3), math.exp(0.3 + 1.96 * s)) for s in sigmas]
    )
    assert np.mean((draws >= low) & (draws <= high)) == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize(("hits", "trials"), [(0, 5), (9, 10), (18, 20), (150, 165), (20, 20)])
def test_wilson_agrees_with_scipy(hits, trials):
    theirs = binomtest(hits, trials).proportion_ci(confidence_level=0.95, method="wilson")
    assert wilson(hits, trials) == pytest.approx((theirs.low, theirs.high), abs=1e-4)


@pytest.mark.parametrize(("hits", "trials"), [(1, 0), (-1, 3), (4, 3)])
def test_wilson_refuses_what_is_no_share(hits, trials):
    with pytest.raises(ValueError, match="no share"):
        wilson(hits, trials)


def test_median_interval_of_fifteen_is_the_fourth_and_the_twelfth():
    values = [float(v) for v in np.random.default_rng(0).permutation(15) + 1]
    assert median_interval(values) == (4.0, 8.0, 12.0)


def test_median_interval_covers_at_least_its_confidence_by_brute_force():
    # whether each of 9 values lies above the true median: all 2^9 patterns are equally likely
    ordered = [float(v) for v in range(1, 10)]
    low, _, high = median_interval(ordered)
    covered = 0
    for pattern in itertools.product((0, 1), repeat=9):
        below = 9 - sum(pattern)
        covered += low <= below < high
    assert covered / 2**9 >= 0.95


def test_few_values_have_the_extremes_as_their_interval():
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)


def test_clusters_are_resampled_whole():
    # one hundred copies in each of two groups are two observations, not two hundred
    low, value, high = clustered_interval([[0.0] * 100, [1.0] * 100], lambda v: float(v.mean()))
    assert (low, value, high) == (0.0, 0.5, 1.0)
    low, _, high = clustered_interval([[float(i)] for i in range(100)], lambda v: float(np.median(v)))
    assert 35 < low < 49.5 < high < 65


def test_clusters_without_values_are_refused():
    with pytest.raises(ValueError, match="no values"):
        clustered_interval([[], []], lambda v: float(v.mean()))
