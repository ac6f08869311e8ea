"""Replicas: several processes with fewer threads each, for throughput.

Why: a call's serial parts (dispatch, page faults, small operators) leave cores idle that another call could
use. Throughput of ``r`` processes is ``r`` calls over the time of one at its share of threads and of bandwidth;
one call gets slower, so a p99 limit may forbid it. It refuses latency goals and hosts with one core.
"""

from __future__ import annotations

import dataclasses
import os
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaSettings:
    """``replicas`` processes of ``threads`` threads each."""

    replicas: int
    threads: int


class Replicas:
    """Runs the artefact in several processes at once."""

    name: ClassVar[str] = "replicas"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.LATENCY, Term.PAGING, Term.SERIAL, Term.SYNC})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"replicas", "threads"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Gunther 1993, A simple capacity model of massively parallel transaction systems, CMG"
    Settings: ClassVar[type] = ReplicaSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        if candidate.goal.objective is not Objective.THROUGHPUT and candidate.goal.rate_per_s is None:
            return No(f"replicas raise throughput; the objective is {candidate.goal.objective}")
        if _cores(candidate, machine) < 2:
            return No("one core may be used here: a second process would share it")
        if not self.options(candidate, diagnosis, machine):
            return No(f"every split is predicted to exceed the limit of {candidate.goal.p99_s:g} s on p99")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """Splits of the cores into equal parts, most processes first, that keep the goal's p99."""
        cores, limit = _cores(candidate, machine), candidate.goal.p99_s
        splits = [ReplicaSettings(replicas=cores // t, threads=t) for t in range(1, cores // 2 + 1) if cores % t == 0]
        return [
            Option(settings=split, cost_s=0.0)
            for split in splits
            if limit is None or _call_s(candidate, split, diagnosis, machine) <= limit
        ]

    def predict(
        self, candidate: Candidate, settings: ReplicaSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """Calls a second against now; a quarter may be lost to shared caches and clocks."""
        call_s = _call_s(candidate, settings, diagnosis, machine)
        gain = settings.replicas * diagnosis.total_s / (call_s * max(1, candidate.execution.replicas))
        total = diagnosis.total_s
        basis = f"{settings.replicas} calls of {call_s * 1e3:.3g} ms at once against one of {total * 1e3:.3g} ms"
        return Prediction(
            speedup=Interval(low=0.75 * gain, value=0.95 * gain, high=1.1 * gain),
            basis=basis,
        )

    def apply(self, candidate: Candidate, settings: ReplicaSettings) -> tuple[Candidate, Change]:
        """Pinning is left to the measuring: each process takes its own part of the cores."""
        execution = dataclasses.replace(
            candidate.execution, replicas=settings.replicas, threads=settings.threads, cpus=()
        )
        return changed(self, candidate, settings, execution=execution)


def _call_s(candidate: Candidate, settings: ReplicaSettings, diagnosis: Diagnosis, machine: Machine) -> float:
    """Seconds of one call among its siblings: arithmetic at its threads, its share of everyone's bandwidth."""
    now, then, count = candidate.execution.threads, settings.threads, settings.replicas
    arithmetic = _rate(machine, "matmul", candidate.execution.precision, now) / _rate(
        machine, "matmul", candidate.execution.precision, then
    )
    traffic = count * _rate(machine, "dram", None, now) / _rate(machine, "dram", None, then * count)
    compute, memory = diagnosis.seconds(Term.COMPUTE), diagnosis.seconds(Term.MEMORY)
    return diagnosis.total_s - compute - memory + compute * arithmetic + memory * max(1.0, traffic)


def _rate(machine: Machine, name: str, dtype: str | None, threads: int) -> float:
    """A measured ceiling; where none was measured at this count, the nearest, scaled for arithmetic."""
    ceiling = machine.ceiling(name, dtype=dtype, threads=threads)
    if ceiling is None or not ceiling.value:
        return float(threads) if name == "matmul" else 1.0
    return ceiling.value * (threads / ceiling.threads if name == "matmul" else 1.0)


def _cores(candidate: Candidate, machine: Machine) -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(machine.environment.identity.cores, allowed, candidate.goal.cores or allowed))
