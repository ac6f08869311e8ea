"""Which plans to try next, and when to stop: best expected gain per second first, hopeless ones never.

A plan is dropped when the upper end of its prediction cannot beat the best point that keeps the budget. What was
tried corrects what is open, in three ways. Plans of one family (same kernels, other quality) share what their first
sibling showed: when it was fast but lost too much quality they are tried next, when it kept the budget they are worth
nothing more. Plans from the same point share the errors of its diagnosis, so that where one did better than
predicted, the others may too. And plans of one lever share its errors and its luck with the quality budget, so that a
round rather tries several levers than one lever several times.
Pure bookkeeping: nothing is built or measured here, so a search can be printed without being carried out.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

from ironlaw.plan.space import Plan, Step
from ironlaw.records import Interval

START_S = 4.0
"""What a short round costs a candidate beside its building and its calls: start, load, warm up."""
CALLS = 5
"""How many calls of the baseline one more candidate costs in a short round."""
SIBLING_SPREAD = 1.15
WIN = 1.02
"""A plan must be able to beat the best by this much to be worth a try."""
SHARED_ERROR = 0.5
"""Of the error of a lever's prediction, on a log scale, what is expected of its next one."""
BESIDE = 0.5
"""What a plan is worth beside another of the same lever in one round: they share their luck."""
KEEPS, KEEPS_LOSSY, WEIGHT = 0.95, 0.6, 2.0
"""How often a lever keeps the quality budget before anything is known, exact or lossy, counted as so many trials."""


class Search:
    """Open plans and what was learnt so far. Gains are ratios to the baseline, above 1 is better.

    ``call_s`` is what one call of the baseline takes, ``score_s`` what scoring it took. ``dropped`` cannot win;
    ``unaffordable`` might have, and cost more than the time that was left.
    """

    def __init__(self, call_s: float = 0.0, score_s: float = 0.0) -> None:
        self.measure_s = START_S + CALLS * call_s
        self.score_s = score_s
        self.open: dict[str, Plan] = {}
        self.seen: set[str] = set()
        self.best = 1.0
        self.dropped: list[tuple[Plan, str]] = []
        self.unaffordable: list[tuple[Plan, str]] = []
        self._families: dict[str, tuple[float, float, bool]] = {}
        self._surprise: dict[tuple[Step, ...], float] = {}
        self._errors: dict[str, list[float]] = defaultdict(list)
        self._kept: dict[str, list[bool]] = defaultdict(list)

    def add(self, plans: list[Plan]) -> None:
        """Open plans that were not seen before (by the set of their steps: order is the builder's)."""
        for plan in plans:
            name = " + ".join(sorted(str(step) for step in plan.steps))
            if name not in self.seen:
                self.seen.add(name)
                self.open[name] = plan

    def observe(self, plan: Plan, gain: float | None, *, within_budget: bool | None) -> None:
        """What a trial showed: ``gain`` is None when nothing could be measured, ``within_budget`` when not judged."""
        if within_budget is not None:
            self._kept[plan.lever].append(within_budget)
        if gain is None:
            return
        within = bool(within_budget)
        if within:
            self.best = max(self.best, gain)
        ratio = gain / plan.predicted.speedup.value
        self._surprise[plan.steps[:-1]] = max(ratio, self._surprise.get(plan.steps[:-1], 1.0))
        for name in (plan.lever, str(plan.steps[-1])):
            self._errors[name].append(math.log(ratio))
        known = self._families.get(plan.family)
        if known is None or (within and not known[2]):
            self._families[plan.family] = (gain, plan.predicted.speedup.value, within)

    def next_batch(self, size: int, affordable_s: float = math.inf) -> list[Plan]:
        """Up to ``size`` plans to try now, at most one of a family that is still unknown, all within the time.

        What must be on the table comes when nothing better is left. Drops the hopeless, and what would cost
        more than ``affordable_s``.
        """
        self._drop_hopeless(affordable_s)
        chosen: list[Plan] = []
        worth = {name: self._worth(plan) for name, plan in self.open.items()}
        while worth and len(chosen) < size:
            plan = self.open.pop(max(worth, key=worth.__getitem__))
            chosen.append(plan)
            affordable_s -= self.cost_s(plan)
            worth = {
                name: value * BESIDE if other.lever == plan.lever and value > 0 else value
                for name, value in worth.items()
                if (other := self.open.get(name)) and other.family != plan.family
                if self.cost_s(other) <= affordable_s
            }
        return chosen

    def cost_s(self, plan: Plan) -> float:
        """Seconds to try it: to build, to measure shortly, to score."""
        return plan.cost_s + self.measure_s + self.score_s / max(1.0, self.expected(plan).value)

    def expected(self, plan: Plan) -> Interval:
        """The prediction, corrected by what a sibling showed, or by how far others were off.

        What went worse than predicted lowers what is expected of others, never what is possible.
        """
        known = self._families.get(plan.family)
        if known is not None:
            measured, predicted, within = known
            value = measured * plan.predicted.speedup.value / predicted
            spread = 1.0 if within else SIBLING_SPREAD
            return Interval(low=value / spread, value=value, high=value * spread)
        alone = plan.predicted.speedup
        errors = self._errors.get(str(plan.steps[-1])) or self._errors.get(plan.lever) or [0.0]
        off = math.exp(SHARED_ERROR * statistics.mean(errors))
        high = alone.high * max(off, self._surprise.get(plan.steps[:-1], 1.0))
        return Interval(low=alone.low * off, value=alone.value * off, high=max(high, alone.high))

    def _worth(self, plan: Plan) -> float:
        """Expected log gain beyond the best, a second of trying."""
        expected = self.expected(plan)
        hope = (math.log(expected.value) + math.log(expected.high)) / 2 - math.log(self.best)
        return hope * self._keeps(plan) / self.cost_s(plan) if hope > 0 else hope

    def _keeps(self, plan: Plan) -> float:
        """How likely its last lever keeps the budget: what is usual of its kind, then what was seen."""
        kept = self._kept.get(plan.lever, [])
        usual = KEEPS_LOSSY if plan.lossy else KEEPS
        return (WEIGHT * usual + sum(kept)) / (WEIGHT + len(kept))

    def _drop_hopeless(self, affordable_s: float) -> None:
        for name, plan in list(self.open.items()):
            high = self.expected(plan).high
            if not plan.forced and high < self.best * WIN:
                why = f"at most {high:.2f}x predicted, {self.best:.2f}x is already measured"
                self.dropped.append((self.open.pop(name), why))
            elif (cost_s := self.cost_s(plan)) > affordable_s:
                why = f"up to {high:.2f}x predicted, about {cost_s:.0f} s to try"
                self.unaffordable.append((self.open.pop(name), why))
