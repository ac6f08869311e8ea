"""Which plans to try next, and when to stop: best expected gain per second first, hopeless ones never.

A plan is dropped when the upper end of its prediction cannot beat the best point that keeps the budget. What was
tried corrects what is open: plans from the same point share the errors of its diagnosis, so that where one did
better than predicted, the others may too.
Plans of one family (same kernels, other quality) share what their first sibling showed: when it was fast but
lost too much quality they are tried next, when it kept the budget they are worth nothing more.
Pure bookkeeping: nothing is built or measured here, so a search can be printed without being carried out.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ironlaw.plan.space import Plan, Step
from ironlaw.records import Interval

START_S = 4.0
"""What a short round costs a candidate beside its building and its calls: start, load, warm up."""
CALLS = 5
"""How many calls of the baseline one more candidate costs in a short round."""
SIBLING_SPREAD = 1.15
WIN = 1.02
"""A plan must be able to beat the best by this much to be worth a try."""


class Search:
    """Open plans and what was learnt so far. Gains are ratios to the baseline, above 1 is better.

    ``call_s`` is what one call of the baseline takes. ``dropped`` cannot win; ``unaffordable`` might have, and cost
    more than the time that was left.
    """

    def __init__(self, call_s: float = 0.0) -> None:
        self.measure_s = START_S + CALLS * call_s
        self.open: dict[str, Plan] = {}
        self.seen: set[str] = set()
        self.best = 1.0
        self.dropped: list[tuple[Plan, str]] = []
        self.unaffordable: list[tuple[Plan, str]] = []
        self._families: dict[str, tuple[float, float, bool]] = {}
        self._surprise: dict[tuple[Step, ...], float] = {}

    def add(self, plans: list[Plan]) -> None:
        """Open plans that were not seen before (by the set of their steps: order is the builder's)."""
        for plan in plans:
            name = " + ".join(sorted(str(step) for step in plan.steps))
            if name not in self.seen:
                self.seen.add(name)
                self.open[name] = plan

    def observe(self, plan: Plan, gain: float | None, *, within_budget: bool) -> None:
        """What a trial showed; ``gain`` is None when nothing could be measured."""
        if gain is not None and within_budget:
            self.best = max(self.best, gain)
        if gain is not None:
            ratio = gain / plan.predicted.speedup.value
            self._surprise[plan.steps[:-1]] = max(ratio, self._surprise.get(plan.steps[:-1], 1.0))
        known = self._families.get(plan.family)
        if gain is not None and (known is None or (within_budget and not known[2])):
            self._families[plan.family] = (gain, plan.predicted.speedup.value, within_budget)

    def next_batch(self, size: int, affordable_s: float = math.inf) -> list[Plan]:
        """Up to ``size`` plans to try now, at most one of a family that is still unknown.

        What must be on the table comes when nothing better is left. Drops the hopeless, and what would cost
        more than ``affordable_s``.
        """
        self._drop_hopeless(affordable_s)
        ranked = sorted(self.open.items(), key=lambda item: -self._worth(item[1]))
        chosen: list[tuple[str, Plan]] = []
        families: set[str] = set()
        for name, plan in ranked:
            if len(chosen) == size:
                break
            if plan.family not in families:
                chosen.append((name, plan))
                families.add(plan.family)
        for name, _ in chosen:
            del self.open[name]
        return [plan for _, plan in chosen]

    def expected(self, plan: Plan) -> Interval:
        """The prediction, corrected by what a sibling showed, or by how far others from the same point went."""
        known = self._families.get(plan.family)
        if known is None:
            alone = plan.predicted.speedup
            return replace(alone, high=alone.high * self._surprise.get(plan.steps[:-1], 1.0))
        measured, predicted, within = known
        value = measured * plan.predicted.speedup.value / predicted
        spread = 1.0 if within else SIBLING_SPREAD
        return Interval(low=value / spread, value=value, high=value * spread)

    def _worth(self, plan: Plan) -> float:
        """Expected log gain beyond the best, a second of trying."""
        expected = self.expected(plan)
        hope = (math.log(expected.value) + math.log(expected.high)) / 2 - math.log(self.best)
        return hope / (plan.cost_s + self.measure_s) if hope > 0 else hope

    def _drop_hopeless(self, affordable_s: float) -> None:
        for name, plan in list(self.open.items()):
            high = self.expected(plan).high
            if not plan.forced and high < self.best * WIN:
                why = f"at most {high:.2f}x predicted, {self.best:.2f}x is already measured"
                self.dropped.append((self.open.pop(name), why))
            elif plan.cost_s + self.measure_s > affordable_s:
                why = f"up to {high:.2f}x predicted, about {plan.cost_s + self.measure_s:.0f} s to try"
                self.unaffordable.append((self.open.pop(name), why))
