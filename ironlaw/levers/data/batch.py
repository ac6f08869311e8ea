"""Batch: several requests in one call, for throughput under a limit on latency.

Why: what a call pays once (dispatch, streaming the weights) is shared by its examples, until activations leave the
cache or the p99 limit is reached. The prediction splits the measured time into a fixed part (latency, weights over
bandwidth) and a part that grows with the batch. It refuses latency goals, models whose batch cannot change, and
batches whose predicted time is above the limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.records import (
    Axis,
    Candidate,
    Change,
    Diagnosis,
    Interval,
    Kind,
    Machine,
    Objective,
    Prediction,
    Term,
)

SIZES = (2, 4, 8, 16, 32, 64)
_OUT_OF_CACHE = 1.35
"""How much slower the growing part may get when activations no longer fit in the last-level cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSettings:
    """Examples a call."""

    batch: int


class Batch:
    """Sets the batch of the execution."""

    name: ClassVar[str] = "batch"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.DATA
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.LATENCY, Term.MEMORY})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"batch"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Crankshaw et al. 2017, Clipper, NSDI (adaptive batching under a latency objective)"
    Settings: ClassVar[type] = BatchSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        goal = candidate.goal
        if goal.objective is not Objective.THROUGHPUT and goal.rate_per_s is None:
            return No(f"a larger batch raises throughput and latency; the objective is {goal.objective}")
        if not candidate.snapshot.dynamic:
            return No(f"the model is fixed at batch {candidate.snapshot.batch}")
        if not self.options(candidate, diagnosis, machine):
            limit = candidate.goal.p99_s
            return No(f"no larger batch is predicted to stay within p99 of {limit:g} s" if limit else "no larger batch")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """Larger batches whose fastest predicted call keeps the limit, best predicted throughput first."""
        limit = candidate.goal.p99_s
        sizes = [
            size
            for size in SIZES
            if size > candidate.execution.batch and (limit is None or _call_s(size, diagnosis, machine).low <= limit)
        ]
        made = [Option(settings=BatchSettings(batch=size), cost_s=1.0) for size in sizes]
        return sorted(made, key=lambda o: -self.predict(candidate, o.settings, diagnosis, machine).speedup.value)

    def predict(
        self, candidate: Candidate, settings: BatchSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """Examples a second against now."""
        grown = settings.batch / diagnosis.ledger.batch
        call = _call_s(settings.batch, diagnosis, machine)
        fixed = _fixed_s(diagnosis, machine)
        total = diagnosis.total_s
        basis = (
            f"{fixed / total:.0%} of a call is paid once whatever the batch; {settings.batch} examples are predicted "
            f"to take {call.value * 1e3:.3g} ms against {total * 1e3:.3g} ms for {diagnosis.ledger.batch}"
        )
        gains = [grown * total / seconds for seconds in (call.high, call.value, call.low)]
        return Prediction(speedup=Interval(low=gains[0], value=gains[1], high=gains[2]), basis=basis)

    def apply(self, candidate: Candidate, settings: BatchSettings) -> tuple[Candidate, Change]:
        execution = dataclasses.replace(candidate.execution, batch=settings.batch)
        return changed(self, candidate, settings, execution=execution)


def _fixed_s(diagnosis: Diagnosis, machine: Machine) -> float:
    """Seconds that do not grow with the batch: the latency term, and the weights' part of the memory term."""
    weights = sum(op.weights_bytes for op in diagnosis.ledger.ops)
    low = max(diagnosis.ledger.bytes_low, 1.0)
    return diagnosis.seconds(Term.LATENCY) + diagnosis.seconds(Term.MEMORY) * min(1.0, weights / low)


def _call_s(batch: int, diagnosis: Diagnosis, machine: Machine) -> Interval:
    """Seconds of one call at ``batch``: low when larger kernels get more efficient, high when the cache overflows."""
    grown = batch / diagnosis.ledger.batch
    fixed = _fixed_s(diagnosis, machine)
    growing = grown * max(0.0, diagnosis.total_s - fixed)
    high = 1.15 if _fits(grown, diagnosis, machine) else _OUT_OF_CACHE
    return Interval(low=0.8 * fixed + 0.7 * growing, value=fixed + growing, high=1.1 * fixed + high * growing)


def _fits(grown: float, diagnosis: Diagnosis, machine: Machine) -> bool:
    """Whether the activations of the widest operator stay in the last-level cache; unknown caches count as no."""
    cache = max((c.size_bytes for c in machine.caches), default=0)
    widest = max(((op.bytes_high - op.weights_bytes) / max(1, op.calls) for op in diagnosis.ledger.ops), default=0.0)
    return grown * widest <= cache
