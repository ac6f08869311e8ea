"""A batch by one index into the dataset's arrays, instead of a sample at a time and collating them.

Why: a dataset that holds arrays pays Python for every sample of every batch, which for small samples is most of
loading. Whether ``dataset[[3, 1, 2]]`` gives the collated batch was tried on the real dataset when the job was
inspected; where it does not, the lever is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.levers import _loading
from ironlaw.levers._changes import changed
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Kind, Machine, Prediction, Term

LEFT = 0.15
"""Of the time to load a batch sample by sample, what one read is taken to leave."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlicedBatchesSettings:
    """Nothing to choose."""


class SlicedBatches:
    """Reads batches by one index."""

    name: ClassVar[str] = "sliced_batches"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.DATA
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.IO})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.TRAINING})
    claims: ClassVar[frozenset[str]] = frozenset({"loader.reads"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch"})
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "torch.utils.data, Dataset.__getitems__: batched fetching of a map-style dataset"
    Settings: ClassVar[type] = SlicedBatchesSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        found = _loading.of(diagnosis, machine)
        answer = _loading.wanted(found)
        if not answer or found is None:
            return answer
        if candidate.execution.option("loader.sliced"):
            return No("batches are read by one index already")
        if not found.loader.slices:
            return No("a list of indices into the dataset does not give the collated batch")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        return [Option(settings=SlicedBatchesSettings(), cost_s=0.0)]

    def predict(
        self, candidate: Candidate, settings: SlicedBatchesSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        found = _loading.of(diagnosis, machine)
        assert found is not None
        load_s = LEFT * (found.loader.load_s or 0.0)
        restarts = not found.loader.persistent
        step_s = found.step_s(workers=found.loader.workers, load_s=load_s, restarts=restarts)
        why = f"one read for {found.step.batch} samples, taken as {LEFT:.0%} of reading them one by one"
        return _loading.prediction(found, step_s, why)

    def apply(self, candidate: Candidate, settings: SlicedBatchesSettings) -> tuple[Candidate, Change]:
        return changed(self, candidate, settings, execution=candidate.execution.with_options(**{"loader.sliced": True}))
