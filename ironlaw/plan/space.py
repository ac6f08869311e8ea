"""The plans that extend a candidate by one lever, each with its prediction; refusals with reasons.

Conflicts, order and needs are computed from what levers declare; no lever is named here. A lever whose
terms hold next to nothing of the time is refused with the bound that this implies: work on a term that
does not dominate is wasted, whatever the lever promises.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ironlaw.contracts import Lever, No
from ironlaw.plan.arrivals import under_arrivals
from ironlaw.plan.widening import Widening
from ironlaw.records import (
    Candidate,
    Diagnosis,
    Interval,
    Machine,
    Objective,
    Pairs,
    Prediction,
    Refusal,
    Snapshot,
    exactly,
)

_UNPREDICTED = {Objective.MEMORY: "peak memory", Objective.ENERGY: "energy"}
SMALLEST_SHARE = 0.04
"""Below this share of the time, the terms that a lever attacks bound its gain under 1.05x."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A lever with its settings, to be applied."""

    lever: str
    version: int
    settings: Pairs

    def request(self) -> dict[str, Any]:
        """What the builder takes."""
        return {"lever": self.lever, "settings": dict(self.settings)}

    def __str__(self) -> str:
        inside = ", ".join(f"{k}={v}" for k, v in self.settings)
        return f"{self.lever}({inside})" if inside else self.lever


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Steps from the baseline, what they are predicted to give over it, and what trying costs.

    ``family`` is equal for plans whose last lever says that they run alike; ``lossy`` when it changes precision.
    """

    steps: tuple[Step, ...]
    predicted: Prediction
    cost_s: float
    family: str
    forced: bool = False
    lossy: bool = False
    why: str = ""

    @property
    def lever(self) -> str:
        """Its last one; "" of the baseline."""
        return self.steps[-1].lever if self.steps else ""

    @property
    def label(self) -> str:
        return " + ".join(str(step) for step in self.steps) or "baseline"

    def key(self, *context: str) -> str:
        """Content address of what is run in its context (snapshot, machine, baseline's scores)."""
        steps = [(step.lever, step.version, dict(step.settings)) for step in self.steps]
        return hashlib.sha256(json.dumps([*context, steps], sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A candidate that was built and examined, from which plans go on."""

    candidate: Candidate
    steps: tuple[Step, ...]
    diagnosis: Diagnosis
    gain: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """The levers and what holds for all plans of a run.

    ``unmet`` says which declared needs are missing; ``reaches`` whether a form leads to one of others;
    ``always`` holds the labels of single steps that every run tries; ``widening`` what earlier predictions taught.
    """

    levers: Mapping[str, Lever]
    machine: Machine
    unmet: Callable[[Iterable[str], Snapshot], list[str]]
    reaches: Callable[[str, Iterable[str]], bool]
    always: frozenset[str] = frozenset()
    widening: Widening = field(default_factory=Widening)

    def extend(self, point: Point) -> tuple[list[Plan], list[Refusal]]:
        """Every plan with one more lever, and the levers that were refused at this point."""
        plans: list[Plan] = []
        refusals: list[Refusal] = []
        for lever in self.levers.values():
            reason = self._refusal(lever, point)
            if reason is None:
                plans += self._plans(lever, point)
            elif reason:
                refusals.append(Refusal(lever=lever.name, reason=reason))
        return plans, refusals

    def _refusal(self, lever: Lever, point: Point) -> str | None:
        """Why not; "" when it is out of the question without a word to the user; None when it may be tried."""
        candidate = point.candidate
        if candidate.snapshot.kind not in lever.kinds or lever.claims & candidate.claimed:
            return ""
        if lever.consumes and not self.reaches(candidate.model.form, lever.consumes):
            return ""
        if missing := self.unmet(lever.needs, candidate.snapshot):
            return "; ".join(missing)
        if candidate.goal.objective == Objective.SIZE and not any(c.startswith("weights.") for c in lever.claims):
            return "changes no weights: what ships stays as large"
        answer = lever.applies(candidate, point.diagnosis, self.machine)
        if isinstance(answer, No):
            return answer.reason
        return None if lever.name in self._forced else self._wasted(lever, point)

    @property
    def _forced(self) -> set[str]:
        return {label.partition("(")[0] for label in self.always}

    def _wasted(self, lever: Lever, point: Point) -> str | None:
        diagnosis, goal = point.diagnosis, point.candidate.goal
        timed = goal.objective in (Objective.LATENCY, Objective.THROUGHPUT)
        if not timed or diagnosis.dominant is None or not lever.attacks:
            return None
        share = sum(diagnosis.share(term) for term in lever.attacks)
        if share >= SMALLEST_SHARE:
            return None
        terms = " and ".join(sorted(lever.attacks))
        return (
            f"attacks {terms}, which is {share:.0%} of the time here: at most {1 / (1 - share):.2f}x"
            f" ({diagnosis.dominant} dominates)"
        )

    def _plans(self, lever: Lever, point: Point) -> list[Plan]:
        before = ">".join(str(step) for step in point.steps)
        plans = []
        for option in lever.options(point.candidate, point.diagnosis, self.machine):
            predicted = lever.predict(point.candidate, option.settings, point.diagnosis, self.machine)
            predicted = self.widening(predicted, lever.name, lever.version, point.candidate.snapshot.kind)
            predicted = _for_goal(point, option.settings, predicted)
            step = Step(lever=lever.name, version=lever.version, settings=_set(option.settings))
            steps = (*point.steps, step)
            plans.append(
                Plan(
                    steps=steps,
                    predicted=dataclasses.replace(predicted, speedup=point.gain.times(predicted.speedup)),
                    cost_s=option.cost_s,
                    family=f"{before}>{lever.name} {option.alike}" if option.alike else f"{before}>{step}",
                    forced=not point.steps and str(step) in self.always,
                    lossy=any(claim.endswith(".dtype") for claim in lever.claims),
                )
            )
        return plans


def baseline_point(candidate: Candidate, diagnosis: Diagnosis) -> Point:
    """Where every search starts."""
    return Point(candidate=candidate, steps=(), diagnosis=diagnosis, gain=exactly(1.0))


def _for_goal(point: Point, settings: Any, predicted: Prediction) -> Prediction:
    """Levers predict time; what a goal asks for besides is derived from that, or measured and not predicted."""
    goal, execution = point.candidate.goal, point.candidate.execution
    if goal.rate_per_s is not None and goal.objective == Objective.LATENCY:
        return under_arrivals(
            predicted,
            service_s=point.diagnosis.total_s,
            rate_per_s=goal.rate_per_s,
            execution=execution,
            settings=settings,
        )
    what = _UNPREDICTED.get(goal.objective)
    if what is None:
        return predicted
    return dataclasses.replace(
        predicted,
        speedup=Interval(low=0.2, value=1.0, high=5.0),
        basis=f"{what} is measured, not predicted",
        widened=1.0,
    )


def _set(settings: Any) -> Pairs:
    """What is set otherwise than the defaults."""
    fields = dataclasses.fields(settings)
    return tuple((f.name, value) for f in fields if (value := getattr(settings, f.name)) != f.default)
