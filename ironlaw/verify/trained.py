"""Whether a training job run otherwise trains the same model, judged without knowing how it was run.

First by its trajectory: a few steps from the same weights. Where parameters end within :data:`SAME` of the way that
they went, the same is computed, and quality needs no further proof. Otherwise whole jobs must be trained, several
seeds each, and the drop has Student's interval over pairs of one seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import t as student

from ironlaw.records import Goal, Quality

SAME = 1e-3
"""Of the distance that the parameters went: reordered sums in float32 stay far below, bf16 far above."""
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """What is known of a job's quality.

    ``apart`` is how far its trajectory ends from the baseline's, of the way gone; ``apart_on_same`` the same where both
    were given the same batches. ``values`` are what the models of one seed after the other were worth; empty when
    nothing was trained to the end, and ``note`` may say why.
    """

    apart: float
    apart_on_same: float
    values: tuple[float, ...] = ()
    note: str = ""

    @property
    def same(self) -> bool:
        """The same batches and the same arithmetic."""
        return self.apart <= SAME


def judge(metric: str, higher_is_better: bool, baseline: Trained, ours: Trained, goal: Goal) -> Quality:
    """The quality of a job against the baseline's. Without trained models, only the same trajectory is within."""
    reference = statistics.mean(baseline.values) if baseline.values else 0.0
    known = baseline.values or (0.0,)
    if ours.same:
        reason = f"trains the same: parameters end {ours.apart:.1e} of their way from the baseline's"
        return _quality(metric, statistics.mean(known), reference, 0.0, 0.0, 0.0, within=True, reason=reason)
    if not ours.values or len(ours.values) != len(baseline.values):
        return _quality(metric, None, reference, None, None, None, within=False, reason=_unproven(ours))
    sign = 1.0 if higher_is_better else -1.0
    drops = [sign * (one - two) for one, two in zip(baseline.values, ours.values, strict=True)]
    scale = abs(reference) if goal.max_drop.relative else 1.0
    low, drop, high = (value / scale for value in _interval(drops))
    value = statistics.mean(ours.values)
    enough = goal.min_quality is None or sign * (value - goal.min_quality) >= 0
    within = high <= goal.max_drop.amount and enough
    reason = (
        f"{metric} {value:.4g} against {reference:.4g} over {len(drops)} seeds: the drop is at most "
        f"{100 * high:.2g} pt (95 %) against a budget of {goal.max_drop}"
    )
    return _quality(metric, value, reference, drop, low, high, within=within, reason=reason)


def _unproven(ours: Trained) -> str:
    what = "batches" if ours.apart_on_same <= SAME else "arithmetic"
    why = ours.note or "the job has no evaluate, which could judge trained models"
    return f"its {what} differ from the baseline's, {ours.apart:.1e} of the way after a few steps, and {why}"


def _interval(drops: Sequence[float]) -> tuple[float, float, float]:
    mean = statistics.mean(drops)
    if len(drops) < 2:
        return -math.inf, mean, math.inf
    half = student.ppf(0.5 + CONFIDENCE / 2, len(drops) - 1) * statistics.stdev(drops) / math.sqrt(len(drops))
    return mean - half, mean, mean + half


def _quality(
    metric: str,
    value: float | None,
    baseline: float,
    drop: float | None,
    low: float | None,
    high: float | None,
    *,
    within: bool,
    reason: str,
) -> Quality:
    return Quality(
        metric=metric, value=value, baseline=baseline, drop=drop, low=low, high=high, examples=None,
        provable=None if drop is None or high is None else high - drop, within=within, reason=reason,
    )  # fmt: skip
