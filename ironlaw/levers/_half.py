"""Half precision for the torch targets: what bf16 and fp16 share.

Whether it pays is a question of kernels, so it is asked of this machine's measured ceilings: a CPU
without such units converts to fp32 and back, and then the refusal says both rates. Convolutions and
products are predicted from the rates of their half-precision kernels, everything else as the ledger says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.levers._torch import for_torch
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Interval, Kind, Machine, Prediction, Term

_CAST_S = 2.0
WORTH = 1.05
ARITHMETIC = ("conv", "depthwise", "matmul", "attention", "recurrent")


@dataclass(frozen=True, kw_only=True, slots=True)
class HalfSettings:
    """Nothing to choose: the target casts the whole model where it can and autocasts where it cannot."""


class Half:
    """The lever for one half-precision dtype; ``name`` is the precision."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.COMPUTE, Term.MEMORY})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"compute.dtype"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch"})
    target: ClassVar[str] = ""
    cites: ClassVar[str]
    Settings: ClassVar[type] = HalfSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        asked = for_torch(candidate, self.name)
        if not asked:
            return asked
        if candidate.execution.precision != "fp32":
            return No(f"the arithmetic is already {candidate.execution.precision}")
        if not any(op.kind in ARITHMETIC for op in diagnosis.ledger.ops):
            return No(f"{self.name}: no convolution or product to run in it")
        return self._pays(machine, candidate.execution.threads)

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        return [Option(settings=HalfSettings(), cost_s=_CAST_S)]

    def predict(
        self, candidate: Candidate, settings: HalfSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """From half-precision kernel rates; never more than the arithmetic's share can give."""
        execution = candidate.execution
        found = predict.moved(diagnosis, machine, target=execution.target, dtype=self.name, threads=execution.threads)
        gain = found.speedup
        ratio = _ratio(machine, self.name, execution.threads)
        cap = max(4.0, 1.5 * ratio) if ratio else 8.0
        capped = Interval(low=min(gain.low, cap), value=min(gain.value, cap), high=min(gain.high, cap))
        return dataclasses.replace(found, speedup=capped)

    def apply(self, candidate: Candidate, settings: HalfSettings) -> tuple[Candidate, Change]:
        execution = dataclasses.replace(candidate.execution, precision=self.name)
        return changed(self, candidate, settings, execution=execution)

    def _pays(self, machine: Machine, threads: int) -> Yes | No:
        half = machine.ceiling("matmul", dtype=self.name, threads=threads)
        full = machine.ceiling("matmul", dtype="fp32", threads=threads)
        if half is None or full is None:
            return No(f"{self.name}: its ceiling was not measured here, so nothing says that it would pay")
        ratio = half.value / full.value
        if ratio < WORTH:
            why = "converted to fp32 and back" if ratio < 0.5 else "no faster"
            return No(
                f"{self.name} refused: {half.value / 1e9:.3g} GFLOP/s measured against {full.value / 1e9:.3g} in fp32 "
                f"({why} on this CPU): bound {ratio:.2g}x"
            )
        return Yes()


def _ratio(machine: Machine, dtype: str, threads: int) -> float | None:
    half = machine.ceiling("matmul", dtype=dtype, threads=threads)
    full = machine.ceiling("matmul", dtype="fp32", threads=threads)
    return half.value / full.value if half and full and full.value else None
