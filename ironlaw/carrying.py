"""Carries a diagnosis to published machines: each call is counted again for the cache there, then placed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ironlaw import hardware
from ironlaw.bench import Bench
from ironlaw.diagnose.elsewhere import elsewhere
from ironlaw.measure.process import WorkerFailure
from ironlaw.records import Candidate, Diagnosis, Ledger


def carried(diagnosis: Diagnosis, names: Sequence[str], bench: Bench, talk: Callable[[str], None]) -> Diagnosis:
    """The diagnosis of the bench's baseline with one answer for each name of :mod:`ironlaw.hardware`.

    Raises UserError for an unknown name.
    """
    candidate = bench.baseline.candidate or bench.base
    found = []
    for name in names:
        there = hardware.machine(name)
        cache = int(there.cache_bytes.value) if there.cache_bytes else None
        talk(f"count a call for the cache of {there.title}")
        counted = _counted(bench, candidate, cache, talk)
        weights = float(candidate.snapshot.weights_bytes)
        found.append(elsewhere(diagnosis, there, counted=counted, weights_bytes=weights))
    return dataclasses.replace(diagnosis, elsewhere=tuple(found))


def _counted(bench: Bench, candidate: Candidate, cache_bytes: int | None, talk: Callable[[str], None]) -> Ledger | None:
    """The counting pass with another cache; None, said to ``talk``, when it fails."""
    try:
        return bench.ledger(candidate, cache_bytes)
    except WorkerFailure as failure:
        talk(f"operators were not counted again: {failure.reason}")
        return None
