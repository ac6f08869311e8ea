"""Intra-op threads, pinned to cores: how many workers share one call.

Why its own lever: the best count is rarely the default (all cores), since threads stop helping where
the bandwidth knee is and each parallel region has a price. Where kernels were calibrated at both counts, the
prediction is what operators of these shapes take at one against the other. Else it is Amdahl's law with the
terms as shares: compute scales with the measured arithmetic ceiling at each thread count, memory with the
measured bandwidth, and latency, paging and the rest do not scale. It refuses more threads than cores.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw import predict
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
    Prediction,
    Term,
)

_PARALLEL = (Term.COMPUTE, Term.MEMORY)
_BARRIERS = 0.6
_UNMEASURED_LOW = 0.95
"""Where no ceiling was measured at a count, it may give nothing and cost a little."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadSettings:
    """``threads`` workers, on the first so many cores of this process's affinity where ``pinned``."""

    threads: int
    pinned: bool = True


class Threads:
    """Sets the intra-op thread count and pins it."""

    name: ClassVar[str] = "threads"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.COMPUTE, Term.MEMORY, Term.SYNC})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE, Kind.TRAINING})
    claims: ClassVar[frozenset[str]] = frozenset({"threads"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Amdahl 1967, Validity of the single processor approach, AFIPS 30"
    Settings: ClassVar[type] = ThreadSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        cores = _cores(candidate, machine)
        if cores == 1 and candidate.execution.threads == 1:
            return No("one core may be used here, so there is one thread to run on")
        share = sum(diagnosis.share(term) for term in _PARALLEL)
        if share < 0.05 and candidate.execution.threads == 1:
            bound = 1 / (1 - share * (1 - 1 / cores))
            return No(f"only {share:.0%} of the time is arithmetic or memory that threads share: at most {bound:.2f}x")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """All cores, then halves of them down to one; the present setting is left out."""
        counts, count = [], _cores(candidate, machine)
        while count >= 1:
            counts.append(count)
            count //= 2
        now = candidate.execution
        return [
            Option(settings=ThreadSettings(threads=n), cost_s=0.0)
            for n in counts
            if n != now.threads or _cpus(n) != now.cpus
        ]

    def predict(
        self, candidate: Candidate, settings: ThreadSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        now, then = candidate.execution.threads, settings.threads
        if _calibrated(machine, diagnosis.target, {now, then}):
            dtype = candidate.execution.precision
            found = predict.moved(diagnosis, machine, target=diagnosis.target, dtype=dtype, threads=then)
            return dataclasses.replace(found, basis=f"{then} against {now} threads: {found.basis}")
        compute = _scaling(machine, "matmul", candidate.execution.precision, now, then)
        memory = _scaling(machine, "dram", None, now, then)
        seconds = sum(diagnosis.seconds(term) for term in _PARALLEL)
        factor = _blend(compute, memory, diagnosis)
        basis = (
            f"Amdahl: {seconds / diagnosis.total_s:.0%} of the time is shared by threads; {then} against {now} give "
            f"{compute.value:.2f}x arithmetic and {memory.value:.2f}x bandwidth as measured here"
        )
        touched = Interval(low=0.8 * seconds, value=seconds, high=min(1.15 * seconds, diagnosis.total_s))
        predicted = predict.amdahl(diagnosis, seconds=touched, factor=factor, basis=basis)
        return _without_barriers(predicted, diagnosis) if then < now else predicted

    def apply(self, candidate: Candidate, settings: ThreadSettings) -> tuple[Candidate, Change]:
        cpus = _cpus(settings.threads) if settings.pinned else ()
        execution = dataclasses.replace(candidate.execution, threads=settings.threads, cpus=cpus)
        return changed(self, candidate, settings, execution=execution)


def _calibrated(machine: Machine, target: str, counts: set[int]) -> bool:
    """Whether this runtime's kernels were timed, undisturbed, at just these thread counts."""
    return counts <= {kernel.threads for kernel in machine.kernels if kernel.target == target and kernel.valid}


def _without_barriers(predicted: Prediction, diagnosis: Diagnosis) -> Prediction:
    """Fewer threads also end waiting at barriers, which hides in the latency of small operators: how much
    of it is not known, up to ``_BARRIERS`` of the term."""
    least_s = diagnosis.total_s / predicted.speedup.high - _BARRIERS * diagnosis.seconds(Term.LATENCY)
    high = diagnosis.total_s / max(least_s, 0.05 * diagnosis.total_s)
    basis = f"{predicted.basis}; barriers between threads may be up to {_BARRIERS:.0%} of the latency"
    return dataclasses.replace(predicted, speedup=dataclasses.replace(predicted.speedup, high=high), basis=basis)


def _cores(candidate: Candidate, machine: Machine) -> int:
    """Cores that may be used: of the host, of this process, of the goal."""
    return max(1, min(machine.environment.identity.cores, _allowed(), candidate.goal.cores or 1 << 30))


def _allowed() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpus(threads: int) -> tuple[int, ...]:
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0))[:threads])


def _scaling(machine: Machine, name: str, dtype: str | None, now: int, then: int) -> Interval:
    """How much a ceiling grows from ``now`` to ``then`` threads; wide where it was not measured."""
    before = machine.ceiling(name, dtype=dtype, threads=now)
    after = machine.ceiling(name, dtype=dtype, threads=then)
    if before is None or after is None or before.threads != now or after.threads != then or not before.value:
        ideal = then / now
        return Interval(low=min(_UNMEASURED_LOW, ideal), value=ideal**0.8, high=max(1.0, ideal))
    ratio = after.value / before.value
    return Interval(low=min(ratio, after.low / before.value), value=ratio, high=max(ratio, after.high / before.value))


def _blend(compute: Interval, memory: Interval, diagnosis: Diagnosis) -> Interval:
    """One factor for both terms: times add, so factors are averaged harmonically by their seconds."""
    arithmetic, traffic = diagnosis.seconds(Term.COMPUTE), diagnosis.seconds(Term.MEMORY)
    total = arithmetic + traffic
    if total <= 0:
        return Interval(low=1.0, value=1.0, high=1.0)

    def mean(c: float, m: float) -> float:
        return total / (arithmetic / c + traffic / m)

    return Interval(
        low=mean(compute.low, memory.low), value=mean(compute.value, memory.value), high=mean(compute.high, memory.high)
    )
