"""What times by launch say: a fixed cost, a serial share, a share that bandwidth limits. Pure functions on numbers.

Launches are the unit of replication: every quantity is computed launch by launch, and its 95 % interval is Student's
over launches. A fit is only reported where its law holds: an affine fit names the sizes over which it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ironlaw.laws import usl
from ironlaw.laws.speedup import karp_flatt
from ironlaw.measure.statistics import launch_interval
from ironlaw.records import Interval

MISFIT = 0.05
"""How far a mean time may lie from the line, beyond the spread of launches, before the fit is not affine."""
LEAST_SIZES = 3
KNEE = 1.05
"""Within this ratio of the fastest count, fewer threads are as good."""
CONTRAST = 0.10
"""A co-runner that slows a pure stream by no more than this beyond pure arithmetic tells nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Affine:
    """``T(b) = fixed + slope b`` over ``sizes``; ``misfit`` is the largest relative distance from the line."""

    fixed: Interval
    slope: Interval
    sizes: tuple[int, ...]
    misfit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Serial:
    """What threads do not share: ``seconds`` of a call, ``share`` of that on one thread.

    ``knee`` is the smallest count within 5 % of the fastest; ``coherency`` is None where two counts cannot show it.
    """

    seconds: Interval
    share: Interval
    knee: int
    coherency: float | None


def over_launches(values: Sequence[float]) -> Interval:
    """The mean with Student's 95 % interval; needs at least two launches."""
    if len(values) < 2:
        raise ValueError(f"an interval over launches needs at least 2, got {len(values)}")
    low, middle, high = launch_interval([[value] for value in values])
    return Interval(low=low, value=middle, high=high)


def affine(times: Mapping[int, Sequence[float]]) -> Affine | None:
    """The affine law of a call over batch sizes; None when not even the three smallest sizes lie on a line.

    ``times`` holds seconds by batch size, one a launch, all sizes with equally many launches (at least two). Least
    squares in relative error, launch by launch. The largest sizes are left out until the rest lie on a line: what grows
    faster there has left a cache. The interval of the fixed cost also covers the fits that leave one size out.
    """
    sizes = sorted(times)
    while len(sizes) >= LEAST_SIZES:
        table_BL = np.array([times[size] for size in sizes])
        fits = [_line(sizes, column) for column in table_BL.T]
        if (misfit := _misfit(sizes, table_BL, fits)) <= MISFIT:
            fixed, slope = (over_launches([fit[i] for fit in fits]) for i in (0, 1))
            return Affine(fixed=_with_one_left_out(fixed, sizes, table_BL), slope=slope, sizes=(*sizes,), misfit=misfit)
        sizes.pop()
    return None


def serial(times: Mapping[int, Sequence[float]]) -> Serial:
    """The serial part from seconds by thread count (one a launch; 1 and at least one more count).

    With three counts or more by the Universal Scalability Law, whose contention is Amdahl's serial share; with two by
    Karp and Flatt. Neither can exceed the time itself.
    """
    counts = sorted(times)
    fits = [_shares(counts, column) for column in np.array([times[n] for n in counts]).T]
    mean = {n: float(np.mean(times[n])) for n in counts}
    coherency = [c for _, _, c in fits if c is not None]
    return Serial(
        seconds=over_launches([share * one_s for share, one_s, _ in fits]),
        share=over_launches([share for share, _, _ in fits]),
        knee=min(n for n in counts if mean[n] <= KNEE * min(mean.values())),
        coherency=float(np.mean(coherency)) if coherency else None,
    )


def memory_share(
    workload: Sequence[float], streams: Sequence[Sequence[float]], arithmetic: Sequence[float]
) -> Interval | None:
    """The share of the time that bandwidth limits, from slow-downs by one co-runner, one a launch (1 is none).

    Each second of memory is slowed like a pure stream, all others like pure arithmetic in the cache, so the share is
    where the workload lies between the two. Which of the streams it resembles is not known: the answer spans them,
    up to 1 where one of them is hardly slowed. None when no stream is told from arithmetic.
    """
    shares = [_between(workload, stream, arithmetic) for stream in streams]
    found = [share for share in shares if share is not None]
    if not found:
        return None
    high = 1.0 if len(found) < len(shares) else max(share.high for share in found)
    low, value, high = (
        min(1.0, max(0.0, one)) for one in (min(s.low for s in found), sum(s.value for s in found) / len(found), high)
    )
    return Interval(low=low, value=value, high=max(value, high))


def _between(workload: Sequence[float], stream: Sequence[float], arithmetic: Sequence[float]) -> Interval | None:
    """Where the workload lies between arithmetic (0) and a stream (1); None where these are too close to tell."""
    contrast = over_launches([s - a for s, a in zip(stream, arithmetic, strict=True)])
    if contrast.low < CONTRAST:
        return None
    return over_launches([(w - a) / (s - a) for w, s, a in zip(workload, stream, arithmetic, strict=True)])


def _line(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """(fixed, slope) with the least squared relative error."""
    y_B = np.asarray(seconds, dtype=float)
    design_BC = np.stack([np.ones(len(sizes)), np.asarray(sizes, dtype=float)], axis=1) / y_B[:, None]
    solved, *_ = np.linalg.lstsq(design_BC, np.ones(len(sizes)), rcond=None)
    return float(solved[0]), float(solved[1])


def _misfit(sizes: Sequence[int], table_BL: np.ndarray, fits: Sequence[tuple[float, float]]) -> float:
    """The largest mean relative distance from the line of any size, less what launches differ by."""
    fitted_BL = np.array([[fixed + slope * size for fixed, slope in fits] for size in sizes])
    worst = 0.0
    for row in fitted_BL / table_BL - 1.0:
        off = over_launches(row.tolist())
        worst = max(worst, off.low, -off.high)
    return worst


def _with_one_left_out(fixed: Interval, sizes: Sequence[int], table_BL: np.ndarray) -> Interval:
    """The interval widened over the fits without one of the sizes; three sizes leave nothing to leave out."""
    if len(sizes) <= LEAST_SIZES:
        return fixed
    mean_B = table_BL.mean(axis=1)
    rest = [[i for i in range(len(sizes)) if i != out] for out in range(len(sizes))]
    found = [_line([sizes[i] for i in kept], mean_B[kept].tolist())[0] for kept in rest]
    return Interval(low=min(fixed.low, *found), value=fixed.value, high=max(fixed.high, *found))


def _shares(counts: Sequence[int], seconds: Sequence[float]) -> tuple[float, float, float | None]:
    """(serial share, seconds on one thread, coherency or None)."""
    if len(counts) >= 3:
        fit = usl.fit(workers=counts, throughputs=[1.0 / float(s) for s in seconds])
        return fit.sigma, 1.0 / fit.gamma, fit.kappa
    one_s, last_s = float(seconds[0]), float(seconds[-1])
    share = karp_flatt(speedup=one_s / last_s, n=counts[-1])
    return min(1.0, max(0.0, share)), one_s, None
