"""Mixed precision of a training job: products and convolutions in bf16, weights, sums and updates in float32.

Whether it is faster is a question of kernels, asked of this machine's measured ceilings: a CPU without bf16 units
converts to float32 and back, and the refusal says both rates. Less memory is its other gain, since activations are kept
in bf16. It changes what is computed, so that trained models must be judged: without ``evaluate`` it is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Interval, Kind, Machine, Objective, Prediction, Term

WORTH = 1.03
PRODUCTS = ("conv", "matmul", "attention")


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedPrecisionSettings:
    """Nothing to choose: bf16 needs no scaling of the loss."""


class MixedPrecision:
    """Autocast to bf16 around the forward pass and the loss."""

    name: ClassVar[str] = "mixed_precision"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.COMPUTE, Term.MEMORY})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.TRAINING})
    claims: ClassVar[frozenset[str]] = frozenset({"compute.dtype"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch", "evaluate"})
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Micikevicius et al. 2018, arXiv:1710.03740; Kalamkar et al. 2019, arXiv:1905.12322 (bf16)"
    Settings: ClassVar[type] = MixedPrecisionSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        if diagnosis.step is None:
            return No("nothing is known of a step here")
        if candidate.execution.precision != "fp32":
            return No(f"the arithmetic is already {candidate.execution.precision}")
        if not any(op.kind in PRODUCTS for op in diagnosis.ledger.ops):
            return No("there is no product and no convolution, which is what runs in bf16")
        if candidate.goal.objective == Objective.MEMORY:
            return Yes()
        if slow := _emulated(machine, diagnosis.threads):
            return No(slow)
        predicted = self.predict(candidate, MixedPrecisionSettings(), diagnosis, machine)
        if predicted.speedup.high < WORTH:
            return No(f"at most {predicted.speedup.high:.2f}x: {predicted.basis}")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        return [Option(settings=MixedPrecisionSettings(), cost_s=0.0)]

    def predict(
        self, candidate: Candidate, settings: MixedPrecisionSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """Of forward, backward and optimiser the gain at bf16 rates; Amdahl's law over the step."""
        step = diagnosis.step
        assert step is not None
        inner = tuple(one for one in diagnosis.terms if one.term not in (Term.IO, Term.SERIAL))
        work = dataclasses.replace(diagnosis, total_s=step.work_s, terms=inner)
        moved = predict.moved(work, machine, target="torch", dtype="bf16", threads=candidate.execution.threads)
        share = step.work_s / step.total.value
        low, value, high = (1 / (1 - share + share / gain) for gain in _ends(moved.speedup))
        return Prediction(
            speedup=Interval(low=low, value=value, high=high), basis=f"{share:.0%} of a step: {moved.basis}"
        )

    def apply(self, candidate: Candidate, settings: MixedPrecisionSettings) -> tuple[Candidate, Change]:
        execution = dataclasses.replace(candidate.execution, precision="bf16")
        return changed(self, candidate, settings, execution=execution)


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.value, interval.high


def _emulated(machine: Machine, threads: int) -> str:
    """Why bf16 cannot pay, from both measured ceilings of a product; "" where it may."""
    wide = machine.ceiling("matmul", dtype="fp32", threads=threads)
    narrow = machine.ceiling("matmul", dtype="bf16", threads=threads)
    if wide is None or narrow is None:
        return "the ceiling of bf16 was not measured here, so nothing says that it would pay"
    if narrow.value > wide.value:
        return ""
    return f"products reach {narrow.value / 1e9:.0f} GFLOP/s in bf16 against {wide.value / 1e9:.0f} in fp32 here"
