"""This machine, as situations meet it: small models counted, profiled and timed in this process, then diagnosed.

Why in this process and not through the bench: a situation is a few milliseconds of work, and what is put to the
test is what ironlaw says of it, which comes from the same counting, profile, ceilings, diagnosis, detectors and
plans as in ``diagnose`` and ``tune``. The proof of a gain needs fresh processes; nothing is claimed here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ironlaw import registry
from ironlaw.diagnose import diagnose, merge
from ironlaw.diagnose.killers import Facts, findings
from ironlaw.measure.inspection import inspect_torch
from ironlaw.measure.ledger_torch import count_module
from ironlaw.measure.profile_torch import profile
from ironlaw.plan.space import Plan, Space, baseline_point
from ironlaw.records import (
    Candidate,
    Diagnosis,
    Energy,
    Execution,
    Finding,
    Goal,
    Machine,
    Measurement,
    Percentiles,
    Refusal,
)

T = TypeVar("T")
TIMED_S = 0.25
CALLS = (5, 200)
"""Least and most timed calls."""
PROFILED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """One model as ironlaw sees it here."""

    diagnosis: Diagnosis
    facts: Facts

    @property
    def found(self) -> dict[str, Finding]:
        """The silent killers by kind."""
        return {one.kind: one for one in findings(self.facts)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """What ``tune`` would try first, and what it refuses."""

    plans: tuple[Plan, ...]
    refusals: tuple[Refusal, ...]

    def refused(self, lever: str) -> str:
        """Why a lever was refused; "" when it was not."""
        return next((one.reason for one in self.refusals if one.lever == lever), "")

    def of(self, lever: str) -> list[Plan]:
        """The plans whose last step is that lever, its first choice first."""
        return [plan for plan in self.plans if plan.steps[-1].lever == lever]


@dataclass(kw_only=True)
class Here:
    """``machine`` are the measured ceilings, ``folder`` a place for files."""

    machine: Machine
    folder: Path
    _once: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Make something that several cases look at; the first of them pays."""
        if name not in self._once:
            self._once[name] = make()
        found: T = self._once[name]
        return found

    @cached_property
    def cache_bytes(self) -> int | None:
        return max((cache.size_bytes for cache in self.machine.caches), default=None)

    def examine(
        self,
        model: Any,
        *inputs: Any,
        execution: Execution | None = None,
        batch: int = 1,
        inside: bool = False,
        **facts: Any,
    ) -> Examined:
        """Diagnose one forward of ``model`` on one thread, and look ``inside`` it where asked.

        ``execution`` is what the detectors are told of how it runs; ``facts`` are further fields of :class:`Facts`.
        """
        import torch

        run = execution or Execution()
        model.eval()
        with one_thread(), torch.inference_mode():
            if inside:  # first: a compiled model that was counted under a dispatch mode is no longer compiled
                facts["inspection"] = inspect_torch(model, model, inputs, vary=True)
            measured = timed(lambda: model(*inputs))
            counted = count_module(model, inputs, batch=batch, cache_bytes=self.cache_bytes)
            ledger = merge(counted, profile(lambda: model(*inputs), PROFILED))
        diagnosis = diagnose(ledger, measured, self.machine, dataclasses.replace(run, threads=1, replicas=1))
        seen = Facts(
            ledger=diagnosis.ledger,
            terms=diagnosis.terms,
            measurement=measured,
            machine=self.machine,
            execution=run,
            **facts,
        )
        return Examined(diagnosis=diagnosis, facts=seen)

    def candidate(self, model: Any, example: Any, goal: Goal | None = None, *, calibrated: bool = True) -> Candidate:
        """The model as a workload on one thread of torch, snapshotted as ``tune`` does it."""
        from ironlaw.workloads.inference import Inference
        from ironlaw.workloads.snapshot import snapshot

        inference = Inference(model.eval(), example, calibrate=[example] if calibrated else None)
        taken = snapshot(inference, self.folder, "case")
        execution = Execution(target="torch", batch=taken.batch, threads=1)
        return Candidate(snapshot=taken, model=taken.model, execution=execution, goal=goal or Goal())

    def plan(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine | None = None) -> Planned:
        """Every lever that ironlaw has, asked about a candidate; ``machine`` stands in for this one."""
        from ironlaw import forms

        host = machine or self.machine
        isa = host.environment.identity.isa
        space = Space(
            levers=registry.levers(),
            machine=host,
            unmet=lambda needs, taken: registry.unmet(needs, isa=isa, calibration=taken.calibration_batches > 0),
            reaches=lambda source, wanted: forms.nearest(source, wanted) is not None,
        )
        plans, refusals = space.extend(baseline_point(candidate, diagnosis))
        return Planned(plans=tuple(plans), refusals=tuple(refusals))


def timed(call: Callable[[], object]) -> Measurement:
    """Median seconds of a call after a warm-up, with the page faults and CPU time of each."""
    start = time.perf_counter()
    call()
    call()
    each = (time.perf_counter() - start) / 2.0
    count = min(CALLS[1], max(CALLS[0], int(TIMED_S / each)))
    before, seconds = resource.getrusage(resource.RUSAGE_SELF), []
    for _ in range(count):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_SELF)
    system_s = (after.ru_stime - before.ru_stime) / count
    p50 = statistics.median(seconds)
    return Measurement(
        latency_s=Percentiles(p50=p50, p90=None, p99=None, mean=statistics.fmean(seconds), samples=count),
        throughput_per_s=1.0 / p50,
        batch=1,
        launches=1,
        blocks=1,
        peak_memory_bytes=after.ru_maxrss * 1024,
        size_bytes=0,
        load_s=0.0,
        prepare_s=0.0,
        warmup_calls=2,
        warm=True,
        faults_per_call=(after.ru_minflt - before.ru_minflt) / count,
        system_s_per_call=system_s,
        cpu_s_per_call=(after.ru_utime - before.ru_utime) / count + system_s,
        threads_effective=1.0,
        foreign_cpu=0.0,
        energy_j=Energy(value=None, source="unknown"),
    )


def fastest(calls: Sequence[Callable[[], object]], *, seconds: float = 0.4) -> list[float]:
    """The least seconds of each call, taken in turns, so that a neighbour meets all of them."""
    least = [float("inf")] * len(calls)
    for call in calls:
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call()
            least[index] = min(least[index], time.perf_counter() - start)
    return least


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread of this process."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
