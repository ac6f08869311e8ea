"""Every sample decoded once, kept as arrays on disk, and batches read from them by one index.

Why: a job decodes and transforms the same samples in every epoch. The arrays are mapped into memory and shared by all
loader workers. Refused where the same index gives another sample the second time (augmentation would freeze), where
shapes differ, and where the arrays would crowd the page cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.levers import _loading
from ironlaw.levers._changes import changed
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Kind, Machine, Prediction, Term

SHARE = 0.5
"""Of the host's memory: arrays that the page cache cannot hold are read from disk in every epoch."""
READ_B_PER_S = 1e9
"""Copying rows out of the page cache; small rows cost their Python instead."""
FIXED_S = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodedSamplesSettings:
    """Nothing to choose."""


class DecodedSamples:
    """Decodes the dataset once."""

    name: ClassVar[str] = "decoded_samples"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.DATA
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.IO})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.TRAINING})
    claims: ClassVar[frozenset[str]] = frozenset({"loader.reads"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch"})
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Murray et al. 2021, tf.data: A Machine Learning Data Processing Framework, VLDB 14(12)"
    Settings: ClassVar[type] = DecodedSamplesSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        found = _loading.of(diagnosis, machine)
        answer = _loading.wanted(found)
        if not answer or found is None:
            return answer
        loader = found.loader
        if candidate.execution.option("loader.decoded"):
            return No("samples are decoded already")
        if loader.repeats is False:
            return No("the same index gives another sample each time: decoding once would freeze the augmentation")
        if loader.sample_bytes is None or loader.samples is None:
            return No("samples differ in shape, or hold something else than numbers: they make no arrays")
        whole, memory = loader.sample_bytes * loader.samples, machine.environment.identity.memory_bytes
        if whole > SHARE * memory:
            return No(f"the arrays would take {whole / 1e9:.3g} GB, more than half of {memory / 1e9:.3g} GB of memory")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        loader = diagnosis.loader
        assert loader is not None
        once_s = (loader.load_s or 0.0) * (loader.batches or 1)
        return [Option(settings=DecodedSamplesSettings(), cost_s=once_s)]

    def predict(
        self, candidate: Candidate, settings: DecodedSamplesSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        found = _loading.of(diagnosis, machine)
        assert found is not None
        load_s = FIXED_S + (found.loader.sample_bytes or 0) * found.step.batch / READ_B_PER_S
        restarts = not found.loader.persistent
        step_s = found.step_s(workers=found.loader.workers, load_s=load_s, restarts=restarts)
        why = f"a batch of {found.step.batch} is copied in about {load_s * 1e3:.2g} ms instead of decoded"
        return _loading.prediction(found, step_s, why)

    def apply(self, candidate: Candidate, settings: DecodedSamplesSettings) -> tuple[Candidate, Change]:
        return changed(
            self, candidate, settings, execution=candidate.execution.with_options(**{"loader.decoded": True})
        )
