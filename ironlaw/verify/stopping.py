"""Ending a quality pass early: only when failure is certain, and without spoiling the level of the test.

Looking often at one interval would reject too many good candidates, so the error is shared among a fixed
number of looks; and no look ever accepts, since success needs every example.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ironlaw.metrics import Scores
from ironlaw.records import Goal
from ironlaw.verify.bounds import LEVEL, drop_upper
from ironlaw.verify.quality import badness, bootstrap, discordant, drops, scale_of, worst

LOOKS = 8
"""How often a pass may be asked whether it can stop: the error of a false stop is shared among the looks."""
FEWEST = 32
"""Below this many examples a bootstrap is not asked."""


def certain(baseline: Scores, partial: Scores, goal: Goal) -> str | None:
    """Why a pass may stop now, or None. Only failure is ever certain early: success needs every example.

    Certain in two ways: no outcome of the examples to come could bring a right-or-wrong score within the budget;
    or the drop's *lower* bound is over the budget at a level that :data:`LOOKS` looks share.
    Ask at most that often.
    """
    if not partial.finite:
        return "the metric is NaN"
    seen, total = len(partial.values), len(baseline.values)
    paired = baseline.first(seen)
    if goal.min_quality is not None and partial.fidelity:
        return _floor_lost(partial, goal.min_quality)
    if partial.binary and baseline.binary:
        losses, wins = discordant(paired, partial)
        allowed = goal.max_drop.amount * scale_of(baseline, goal.max_drop)
        best_wins = wins + int((badness(baseline)[seen:] == 1).sum())
        if drop_upper(losses, best_wins, total) > allowed:
            return f"{losses} examples are lost already: no outcome of the rest could prove the budget"
        lower = -drop_upper(wins, losses, seen, 1.0 - (1.0 - LEVEL) / LOOKS)
        return f"the drop is over the budget after {seen} of {total} examples" if lower > allowed else None
    if seen < FEWEST:
        return None
    means = bootstrap(paired, partial)
    low = float(np.quantile(drops(partial, means), (1.0 - LEVEL) / LOOKS))
    over = low > goal.max_drop.amount * scale_of(baseline, goal.max_drop)
    return f"the drop is over the budget after {seen} of {total} examples" if over else None


def stopper(baseline: Scores, goal: Goal) -> Callable[[Scores], bool]:
    """What a ready metric asks after each batch: looks :data:`LOOKS` times at most, evenly over the examples."""
    total = len(baseline.values)
    looked = 0

    def stop(partial: Scores) -> bool:
        nonlocal looked
        share = len(partial.values) * LOOKS // total
        if share <= looked or not partial.finite:
            return not partial.finite
        looked = share
        return certain(baseline, partial, goal) is not None

    return stop


def _floor_lost(partial: Scores, floor: float) -> str | None:
    if len(partial.values) < FEWEST:
        return None
    best = worst(partial, (1.0 - LEVEL) / LOOKS)
    lost = best < floor if partial.higher_is_better else best > floor
    return f"the floor of {floor:g} is out of reach after {len(partial.values)} examples" if lost else None
