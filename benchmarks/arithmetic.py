"""The arithmetic of benchmarks: verdicts on goals, means of ratios, intervals of medians and of shares.

Pure functions on plain numbers, so that what a committed result claims can be tested without measuring. A goal
is met or not only when its whole interval lies on one side of the limit; anything else is unsettled, whatever
the middle says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

Met = bool | Literal["unsettled"]
UNSETTLED: Met = "unsettled"
RESAMPLES = 4000


def met(
    value: float | None,
    low: float | None,
    high: float | None,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Met:
    """Whether a goal is met: exactly one of ``at_least`` and ``at_most`` is given.

    Without an interval the value decides; without a value nothing does.
    """
    if (at_least is None) == (at_most is None):
        raise ValueError("a goal has one limit: at_least or at_most")
    if value is None or math.isnan(value):
        return UNSETTLED
    worst, best = (value, value) if low is None or high is None else (low, high)
    if at_most is not None:
        worst, best, limit = -best, -worst, -at_most
    else:
        assert at_least is not None
        limit = at_least
    if worst >= limit:
        return True
    return False if best < limit else UNSETTLED


def geometric_mean(ratios: Sequence[float]) -> float:
    """exp of the mean of logs. Raises ValueError for an empty set or a ratio that is not positive."""
    if not ratios or min(ratios) <= 0:
        raise ValueError("a geometric mean needs ratios above zero")
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


def geometric_interval(intervals: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """(low, value, high) of the geometric mean of independent ratios given as (low, value, high).

    Half-widths on the log scale add in quadrature, each side by itself, and shrink by the number of ratios.
    """
    value = geometric_mean([middle for _, middle, _ in intervals])
    down = math.hypot(*(math.log(middle / low) for low, middle, _ in intervals)) / len(intervals)
    up = math.hypot(*(math.log(high / middle) for _, middle, high in intervals)) / len(intervals)
    return value * math.exp(-down), value, value * math.exp(up)


def interval_score(low: float, high: float, seen: float, missed: float = 0.1) -> float:
    """The width of a ``1 - missed`` interval, and ``2 / missed`` times how far what was seen lies outside it.

    Smaller is better; in the mean it is smallest for the true quantiles (Winkler 1972; Gneiting and Raftery 2007,
    equation 43). Give logarithms where errors are ratios.
    """
    if high < low:
        raise ValueError(f"an interval from {low} to {high}")
    return (high - low) + 2.0 / missed * max(low - seen, seen - high, 0.0)


def best_interval_score(sigma: float, missed: float = 0.1) -> float:
    """What :func:`interval_score` is in the mean for normal errors of that deviation whose quantiles are known."""
    from scipy.stats import norm

    return float(4.0 / missed * sigma * norm.pdf(norm.ppf(1.0 - missed / 2.0)))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """(low, median, high) of independent values, by order statistics: no assumption on their shape.

    The ends are the values of rank k and n + 1 - k with the largest k whose binomial coverage is at least
    ``confidence``; with fewer than 6 values no rank covers 95 %, and the ends are the extremes.
    """
    from scipy.stats import binom

    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = max(1, int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5)))
    return ordered[rank - 1], float(np.median(ordered)), ordered[-rank]


def clustered_interval(
    groups: Sequence[Sequence[float]], statistic: Callable[[np.ndarray], float], seed: int = 0
) -> tuple[float, float, float]:
    """(low, value, high) at 95 %: whole groups are resampled, since values of one group are alike."""
    arrays = [np.asarray(group, dtype=float) for group in groups if len(group)]
    if not arrays:
        raise ValueError("no values")
    random = np.random.default_rng(seed)
    draws = [
        statistic(np.concatenate([arrays[i] for i in random.integers(0, len(arrays), len(arrays))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(statistic(np.concatenate(arrays))), float(high)
