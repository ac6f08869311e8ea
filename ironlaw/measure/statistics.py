"""Intervals for paired ratios, and percentiles that refuse what the sample cannot support.

Processes of one program differ from launch to launch (memory layout, thread placement), so blocks
inside a launch are not independent and an interval from blocks alone is far too narrow (seen: 5 of
10 A/A intervals of 95 % excluded 1). Launches are therefore the unit of replication: blocks are
reduced to a median a launch, and the interval comes from the spread of launches. Resampling launches
and then blocks was tried and rejected: it counts the spread of blocks twice (docs/decisions).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ironlaw.records import Gain, Percentiles

RESAMPLES = 2000
CONFIDENCE = 0.95
PERCENTILE_CONFIDENCE = 0.99
ONE_LAUNCH_MOST = math.log(3.0)
MIN_LAUNCHES = 3
"""Fewer launches cannot show how launches differ: good for screening, never for a verdict."""


def gain_of(launches: Sequence[Sequence[float]], *, floor: float, settled: bool, seed: int = 0) -> Gain:
    """The gain from log ratios grouped by launch, with its 95 % interval.

    Args:
        launches: per launch, the log of baseline over candidate for each pair of blocks.
        floor: the smallest gain that may be claimed (from A against A).
        settled: whether conditions allowed a verdict.
        seed: of the resampling, so that the same samples give the same interval.
    """
    low, middle, high = launch_interval(launches, seed=seed)
    enough = len(launches) >= MIN_LAUNCHES
    return Gain(
        median=math.exp(middle),
        low=math.exp(low),
        high=math.exp(high),
        floor=floor,
        settled=settled and enough,
        launches=len(launches),
    )


def launch_interval(launches: Sequence[Sequence[float]], *, seed: int = 0) -> tuple[float, float, float]:
    """(low, mean of launch medians, high) of values grouped by launch, at 95 %.

    Launches are the independent unit, so the interval is Student's over the launch medians; their
    spread already holds the spread of blocks. It is never narrower than the bootstrap of blocks
    within launches, which guards against launches that agree by luck. With one launch the spread
    between launches is unknown: the blocks' interval is tripled (threefold either way at most), for screening only.
    """
    groups = [np.asarray(group, dtype=float) for group in launches if len(group)]
    if not groups:
        raise ValueError("no blocks were measured")
    centres = np.array([np.median(group) for group in groups])
    middle = float(centres.mean())
    random = np.random.default_rng(seed)
    # draws[r]: the mean over launches of the median of resampled blocks
    draws = np.mean(
        [np.median(group[random.integers(0, len(group), (RESAMPLES, len(group)))], axis=1) for group in groups], axis=0
    )
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    if len(groups) == 1:
        down, up = (min(3 * float(side), ONE_LAUNCH_MOST) for side in (middle - low, high - middle))
        return middle - down, middle, middle + up
    half = _student_quantile(len(groups) - 1) * float(centres.std(ddof=1)) / math.sqrt(len(groups))
    return min(middle - half, float(low)), middle, max(middle + half, float(high))


def _student_quantile(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, freedom))


def claim_floor(launches: Sequence[Sequence[float]]) -> float:
    """The smallest gain that may be claimed, as a ratio above 1: how far A against A strays from 1.

    The larger side of its interval: a change is only told from no change beyond it.
    """
    low, _, high = launch_interval(launches)
    return math.exp(max(abs(low), abs(high)))


def samples_needed(percentile: float, *, over: int = 0, confidence: float = PERCENTILE_CONFIDENCE) -> int:
    """Samples after which ``over`` of them above a value bound that percentile by it.

    The smallest n with P(Binomial(n, 1 - percentile) <= over) <= 1 - confidence
    (MLPerf LoadGen's early stopping): p99 needs 459 with none over, 662 with one.
    """
    from scipy.stats import binom

    n = over + 1
    step = 1 << 20
    while step:
        while binom.cdf(over, n + step - 1, 1 - percentile) > 1 - confidence:
            n += step
        step //= 2
    return n


def percentiles(samples_s: Sequence[float]) -> Percentiles:
    """p50, p90, p99 and mean of latencies in seconds; p90 and p99 only where the sample supports them."""
    values = np.asarray(samples_s, dtype=float)
    if not len(values):
        raise ValueError("no samples")
    refused, found = [], dict[int, float | None]()
    for p in (90, 99):
        needed = samples_needed(p / 100)
        found[p] = float(np.quantile(values, p / 100)) if len(values) >= needed else None
        if found[p] is None:
            refused.append(f"p{p} needs {needed} samples, there are {len(values)}")
    return Percentiles(
        p50=float(np.median(values)),
        p90=found[90],
        p99=found[99],
        mean=float(values.mean()),
        samples=len(values),
        refused="; ".join(refused),
    )
