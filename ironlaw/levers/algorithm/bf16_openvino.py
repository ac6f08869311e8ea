"""bfloat16 arithmetic in OpenVINO: half the bytes, and kernels of their own where the CPU has them.

Why a lever of its own: OpenVINO does this silently by default, so that a gain looks like the runtime's and a loss of
quality like nobody's. Here fp32 is what ``runtime`` gives and bf16 is asked for by name. It may move the candidate to
OpenVINO itself. It refuses where bf16 is emulated: not by the flag alone, but by the measured rate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Form, Kind, Machine, Objective, Prediction, Term

_TARGET = "openvino"
_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"})
_KINDS = ("conv", "matmul")
_BUILD_S = 6.0
_WORTH = 1.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Bf16OpenVinoSettings:
    """There is nothing to set: weights stay float32 in the file and are narrowed when it loads."""


class Bf16OpenVino:
    """The lever ``bf16_openvino``."""

    name: ClassVar[str] = "bf16_openvino"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.COMPUTE, Term.MEMORY, Term.LATENCY, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"target", "compiler", "layout", "compute.dtype"})
    consumes: ClassVar[frozenset[str]] = frozenset({Form.OPENVINO})
    produces: ClassVar[str] = Form.OPENVINO
    needs: ClassVar[frozenset[str]] = frozenset({"package:openvino"})
    target: ClassVar[str] = _TARGET
    cites: ClassVar[str] = "Kalamkar et al. 2019, arXiv:1905.12322 (bfloat16)"
    Settings: ClassVar[type] = Bf16OpenVinoSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        if candidate.goal.objective == Objective.SIZE:
            return No("bf16_openvino refused: the file stays float32, so its size does not change")
        emulated = _emulated(machine, candidate.execution.threads)
        if emulated:
            return No(f"bf16_openvino refused: {emulated}")
        prediction = self.predict(candidate, Bf16OpenVinoSettings(), diagnosis, machine)
        if prediction.speedup.high < _WORTH:
            return No(f"bf16_openvino refused: at most {prediction.speedup.high:.2f}x here ({prediction.basis})")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        if candidate.execution.target == _TARGET and candidate.execution.precision == "bf16":
            return []
        return [Option(settings=Bf16OpenVinoSettings(), cost_s=_BUILD_S)]

    def predict(
        self, candidate: Candidate, settings: Bf16OpenVinoSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        return predict.moved(diagnosis, machine, target=_TARGET, dtype="bf16", threads=candidate.execution.threads)

    def apply(self, candidate: Candidate, settings: Bf16OpenVinoSettings) -> tuple[Candidate, Change]:
        """Only the execution changes; options of another runtime are dropped."""
        before = candidate.execution
        options = before.options if before.target == _TARGET else ()
        execution = dataclasses.replace(before, target=_TARGET, precision="bf16", options=options)
        return changed(self, candidate, settings, execution=execution)


def _emulated(machine: Machine, threads: int) -> str:
    """Why bf16 has no kernel here, with the measured rates; "" when it has."""
    rates = []
    for kind in _KINDS:
        narrow = machine.kernel(_TARGET, kind, "bf16", threads=threads)
        wide = machine.kernel(_TARGET, kind, "fp32", threads=threads)
        if narrow and wide:
            rates.append((kind, narrow.rate.value, wide.rate.value))
    if rates and all(narrow <= wide for _, narrow, wide in rates):
        words = "; ".join(f"{kind} {n / 1e9:.0f} against {w / 1e9:.0f} GFLOP/s in float32" for kind, n, w in rates)
        return f"bf16 is no faster here: {words}"
    if rates:
        return ""
    narrow_peak = machine.ceiling("matmul", dtype="bf16", threads=threads)
    wide_peak = machine.ceiling("matmul", dtype="fp32", threads=threads)
    if narrow_peak and wide_peak:
        if narrow_peak.value > wide_peak.value:
            return ""
        pair = f"{narrow_peak.value / 1e9:.0f} against {wide_peak.value / 1e9:.0f} GFLOP/s in float32"
        return f"the measured bf16 ceiling is no higher: {pair}"
    if not _FLAGS & set(machine.environment.identity.isa):
        return f"this CPU has none of {', '.join(sorted(_FLAGS))}"
    return ""
