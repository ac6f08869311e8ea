"""Processes that load ahead of the step, kept over epochs, with pinned memory where a device copies.

Why not always "as many as cores": workers that compute take cores from the step, their batches must be received, and
workers that end with each epoch are started again with the next. The prediction holds all three; a loader that waits
for storage gains by more workers than cores, one that computes does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.levers import _loading
from ironlaw.levers._changes import changed
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Kind, Machine, Prediction, Term

WAITS = 0.7
"""A loader whose CPU time is less than this share of its wall time waits for storage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderWorkersSettings:
    """``workers`` processes, each ``prefetch`` batches ahead, kept from epoch to epoch where ``persistent``."""

    workers: int
    prefetch: int = 2
    persistent: bool = True
    pinned: bool = False


class LoaderWorkers:
    """Sets the number of loader workers and how they work ahead."""

    name: ClassVar[str] = "loader_workers"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.IO})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.TRAINING})
    claims: ClassVar[frozenset[str]] = frozenset({"loader.workers"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch"})
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Mohan et al. 2021, Analyzing and Mitigating Data Stalls in DNN Training, VLDB 14(5)"
    Settings: ClassVar[type] = LoaderWorkersSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        return _loading.wanted(_loading.of(diagnosis, machine))

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """One worker, half the cores, all, and twice as many for a loader that waits; prefetching deeper with few."""
        found = _loading.of(diagnosis, machine)
        assert found is not None
        counts = {0, 1, max(1, found.cores // 2), found.cores}
        if (found.loader.cpu_share or 1.0) < WAITS:
            counts |= {2 * found.cores, 4 * found.cores}
        pinned = found.step.device != "cpu"
        tries = [
            LoaderWorkersSettings(workers=n, prefetch=4 if n == 1 else 2, persistent=n > 0, pinned=pinned)
            for n in sorted(counts)
            if n or found.loader.workers
        ]
        now = (found.loader.workers, found.loader.prefetch, found.loader.persistent)
        return [Option(settings=s, cost_s=0.0) for s in tries if (s.workers, s.prefetch, s.persistent) != now]

    def predict(
        self, candidate: Candidate, settings: LoaderWorkersSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        found = _loading.of(diagnosis, machine)
        assert found is not None
        load_s = found.loader.load_s or 0.0
        step_s = found.step_s(workers=settings.workers, load_s=load_s, restarts=not settings.persistent)
        why = f"{settings.workers} workers load a batch in {load_s * 1e3:.3g} ms each, on {found.cores} cores"
        return _loading.prediction(found, step_s, why)

    def apply(self, candidate: Candidate, settings: LoaderWorkersSettings) -> tuple[Candidate, Change]:
        options = {
            "loader.workers": settings.workers,
            "loader.prefetch": settings.prefetch,
            "loader.persistent": settings.persistent,
        }
        if settings.pinned:
            options["loader.pinned"] = True
        return changed(self, candidate, settings, execution=candidate.execution.with_options(**options))
