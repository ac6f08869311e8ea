"""Gradient checkpointing: blocks forget their activations and compute them again in the backward pass.

Memory for time: what is kept falls from all activations to those between blocks (and about sqrt(n) of n plain layers),
and a step runs its forward pass nearly twice. So it is refused where speed is asked for; where memory is, what it saved
is measured, since how much of the peak is activations differs from job to job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Interval, Kind, Machine, Objective, Prediction, Term


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointingSettings:
    """Nothing to choose: chains of blocks are found in the model."""


class Checkpointing:
    """Checkpoints the model's chains of blocks."""

    name: ClassVar[str] = "checkpointing"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.MEMORY})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.TRAINING})
    claims: ClassVar[frozenset[str]] = frozenset({"activations.kept"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch"})
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174"
    Settings: ClassVar[type] = CheckpointingSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        if diagnosis.step is None:
            return No("nothing is known of a step here")
        if candidate.execution.option("checkpointing"):
            return No("blocks are checkpointed already")
        if candidate.goal.objective != Objective.MEMORY:
            return No(f"it makes steps slower, about {1 / self._slower(diagnosis):.2f}x: for --objective memory")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        return [Option(settings=CheckpointingSettings(), cost_s=0.0)]

    def predict(
        self, candidate: Candidate, settings: CheckpointingSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """In time: one more forward pass, less what lies outside of blocks."""
        value = 1 / self._slower(diagnosis)
        return Prediction(
            speedup=Interval(low=0.9 * value, value=value, high=1.0), basis="blocks run forward a second time"
        )

    def apply(self, candidate: Candidate, settings: CheckpointingSettings) -> tuple[Candidate, Change]:
        return changed(self, candidate, settings, execution=candidate.execution.with_options(checkpointing=True))

    def _slower(self, diagnosis: Diagnosis) -> float:
        assert diagnosis.step is not None
        return 1.0 + diagnosis.step.forward.value / diagnosis.step.total.value
