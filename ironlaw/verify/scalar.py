"""Judging where ``evaluate`` gives one number: the outputs seen through ``predict`` must bound the drop.

Without per-example scores nothing pairs, so the only evidence is how many examples came out differently.
What that cannot bound fails, with the advice to return one score an example.
"""

from __future__ import annotations

import math

from ironlaw.metrics import Scalar
from ironlaw.records import Goal, Quality
from ironlaw.verify.bounds import clopper_pearson_upper, drop_upper
from ironlaw.verify.missing import check_baseline, failed


def judge_scalar(
    baseline: Scalar, value: float | None, goal: Goal, disagreements: int | None, examples: int | None
) -> Quality:
    """Whether a single number keeps the budget, with what ``predict`` showed beside it.

    ``disagreements``: how many of the ``examples`` that went through ``predict`` came out differently
    (:func:`ironlaw.metrics.disagreements`). A metric between 0 and 1 is taken as a share of those examples: its
    drop cannot exceed the disagreements, and the bound is the widest that any split of them into wins and
    losses allows. For other metrics only "no disagreement at all" is evidence; without evidence it fails.
    """
    check_baseline(baseline)
    if value is None or not math.isfinite(value):
        return failed(baseline.metric, baseline, f"{baseline.metric} is missing or NaN: that is a failure")
    sign = 1.0 if baseline.higher_is_better else -1.0
    drop = sign * (baseline.value - value)
    scale = (abs(baseline.value) or 1.0) if goal.max_drop.relative else 1.0
    bounds = _bounds(baseline.value, value, drop, disagreements, examples)
    high = None if bounds is None else bounds[1]
    within, reason = _budget(drop / scale, None if high is None else high / scale, goal, disagreements, examples)
    if goal.min_quality is not None:
        worst = value if high is None else value - sign * max(0.0, high - drop)
        held = sign * (worst - goal.min_quality) >= 0
        within = within and held
        reason = f"{reason}; {'clears' if held else 'does not clear'} the floor of {goal.min_quality:g}"
    return Quality(
        metric=baseline.metric,
        value=value,
        baseline=baseline.value,
        drop=drop / scale,
        low=None if bounds is None else bounds[0] / scale,
        high=None if high is None else high / scale,
        examples=examples or None,
        provable=clopper_pearson_upper(0, examples) / scale if examples else None,
        within=within,
        reason=reason,
    )


def _bounds(
    baseline: float, value: float, drop: float, disagreements: int | None, examples: int | None
) -> tuple[float, float] | None:
    """The drop's bounds from disagreements: (low, high), or None where they say nothing."""
    if not examples or disagreements is None:
        return None
    if not (min(baseline, value) >= 0.0 and max(baseline, value) <= 1.0):
        unseen = clopper_pearson_upper(0, examples) * abs(baseline)
        return (drop - unseen, drop + unseen) if disagreements == 0 else None
    moved = round(drop * examples)
    if abs(moved) > disagreements:
        return None
    losses = (disagreements + moved + 1) // 2
    wins = max(0, losses - moved)
    return -drop_upper(wins, losses, examples), max(drop_upper(losses, wins, examples), drop)


def _budget(
    drop: float, high: float | None, goal: Goal, disagreements: int | None, examples: int | None
) -> tuple[bool, str]:
    unit = "%" if goal.max_drop.relative else " pt"
    if drop > goal.max_drop.amount:
        return False, f"the drop is {drop * 100:.3g}{unit} against a budget of {goal.max_drop}"
    if high is None:
        seen = (
            "how many examples differ is not known"
            if disagreements is None
            else f"{disagreements} of {examples} differ"
        )
        return False, f"{seen}, and one number cannot bound the drop: return one score an example from evaluate"
    bounded = f"{disagreements} of {examples} examples differ, which bounds the drop at {high * 100:.3g}{unit}"
    if high <= goal.max_drop.amount:
        return True, f"{bounded}, within the budget of {goal.max_drop}"
    return False, f"{bounded}, over the budget of {goal.max_drop}: return one score an example from evaluate"
