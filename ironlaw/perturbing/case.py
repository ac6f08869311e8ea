"""What every perturbation works on: the subject, its diagnosis, and variants of it measured against the baseline.

Variants are made by levers and measured by the bench in the same rounds as trials are (fresh pinned workers,
interleaved with the baseline), so that a variant that a search has tried before costs nothing here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ironlaw import registry
from ironlaw.bench import Bench, Subject
from ironlaw.diagnose.confirming import agrees
from ironlaw.measure.paired import Effort, Launch
from ironlaw.plan.space import Plan, Step
from ironlaw.records import Diagnosis, Interval, Machine, Pairs, Perturbation, Prediction, Scalar, Term, exactly

EFFORT = Effort(cycles=8, block_s=0.1, round_s=8.0, min_calls=3, against_self=False)
LAUNCHES = 3
QUIET_SHARE = 0.5
"""Of all blocks, at least so many must be free of foreign load, else nothing is confirmed or refuted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A subject of the bench with its diagnosis; ``talk`` gets lines for people."""

    bench: Bench
    subject: Subject
    diagnosis: Diagnosis
    machine: Machine
    talk: Callable[[str], None]

    def changed(self, lever: str, **settings: Scalar) -> Subject:
        """The subject with one more lever applied, built; its ``failure`` says when that was not possible."""
        pairs: Pairs = tuple(settings.items())
        step = Step(lever=lever, version=registry.levers()[lever].version, settings=pairs)
        plan = Plan(
            steps=(*self.subject.plan.steps, step),
            predicted=Prediction(speedup=exactly(1.0), basis="a perturbation: nothing is predicted"),
            cost_s=0.0,
            family="perturbation",
        )
        found = self.bench.subject(plan)
        self.bench.build(found)
        return found

    def measure(self, variants: Sequence[Subject], launches: int | None = None) -> None:
        """Rounds until each variant that works has its launches."""
        wanted = LAUNCHES if launches is None else launches
        while short := [v for v in variants if v.failure is None and len(v.launches) < wanted]:
            self.bench.measure(short, EFFORT)

    def seconds(self, variant: Subject) -> list[float]:
        """Seconds of a call of the variant, one a launch, on the scale of the diagnosis."""
        own = 1.0 if self.subject is self.bench.baseline else _centre(self.subject.launches)
        return [self.diagnosis.total_s / own * relative(launch) for launch in variant.launches]

    def claimed(self, term: Term) -> Interval:
        """What the diagnosis says that a term takes; nothing where it has no such term."""
        return next((one.seconds for one in self.diagnosis.terms if one.term is term), exactly(0.0))

    def answer(self, name: str, term: Term, seconds: Interval, evidence: str, *, quiet: bool = True) -> Perturbation:
        """The record of what a perturbation says, within 0 and the whole call."""
        total = self.diagnosis.total_s
        found = Interval(
            low=_within(seconds.low, total), value=_within(seconds.value, total), high=_within(seconds.high, total)
        )
        if not quiet:
            evidence += "; others had the CPU in most blocks, so nothing is concluded"
        confirms = agrees(self.diagnosis, term, found) if quiet else None
        return Perturbation(name=name, term=term, seconds=found, confirms=confirms, evidence=evidence)


def silent(name: str, term: Term, reason: str) -> tuple[Perturbation, ...]:
    """The record of a perturbation that cannot tell anything here."""
    return (Perturbation(name=name, term=term, seconds=None, confirms=None, evidence=reason),)


def relative(launch: Launch) -> float:
    """Time of a call relative to the baseline's of the same round: the median over its quiet blocks."""
    quiet = [r for r, calm in zip(launch.latency_ratios, launch.quiet, strict=True) if calm]
    return math.exp(-statistics.median(quiet or launch.latency_ratios))


def settled(launches: Sequence[Launch]) -> bool:
    """Whether enough blocks were free of foreign load."""
    quiet = [calm for launch in launches for calm in launch.quiet]
    return sum(quiet) >= QUIET_SHARE * len(quiet)


def milliseconds(seconds: Interval) -> str:
    """``1.2 ms [1.1, 1.4]``."""
    return f"{seconds.value * 1e3:.3g} ms [{seconds.low * 1e3:.3g}, {seconds.high * 1e3:.3g}]"


def _centre(launches: Sequence[Launch]) -> float:
    return statistics.median(relative(launch) for launch in launches)


def _within(seconds: float, total_s: float) -> float:
    return min(total_s, max(0.0, seconds))
