"""Static int8 for ONNX Runtime: weights and activations, quantise-dequantise (QDQ) format.

Why QDQ and not the operator format: ORT fuses it to its own int8 kernels on every CPU, and the
certificate can then show which operators really were fused. Scales of activations come from calibration
batches, so that nothing is measured at run time. Weights are always signed and symmetric; activations
are u8 (one VNNI instruction, where the CPU has it) or s8 (no saturation on older CPUs, slower on newer).
It refuses to guess data: without calibration batches it does not run.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers import _int8, _onnx_int8, _onnx_quantisers
from ironlaw.records import (
    Axis,
    Candidate,
    Change,
    Diagnosis,
    Form,
    Kind,
    Machine,
    Objective,
    Prediction,
    Term,
    UserError,
)

_TARGET = "onnxruntime"


@dataclass(frozen=True, kw_only=True, slots=True)
class Int8StaticSettings:
    """``activation`` u8 or s8; ``calibration`` minmax, entropy or percentile; ``scope`` all or weighted.

    ``reduce_range`` keeps weights to 7 bits, so that u8 x s8 pairs cannot saturate an int16 sum where
    the CPU has no VNNI. ``scope=weighted`` leaves everything but convolutions and products with constant
    weights in float; ``embeddings`` adds look-ups in stored tables to those. ``rows`` bounds the calibration
    examples that are used (0: all).
    """

    activation: str = "u8"
    per_channel: bool = True
    calibration: str = "minmax"
    percentile: float = 99.99
    reduce_range: bool = False
    scope: str = "all"
    embeddings: bool = False
    rows: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("activation", self.activation, _onnx_quantisers.ACTIVATIONS),
            ("calibration", self.calibration, _onnx_quantisers.METHODS),
            ("scope", self.scope, _onnx_quantisers.SCOPES),
        ):
            if value not in known:
                raise UserError(f"int8_static {name}={value!r}", "is not known", f"Use one of {', '.join(known)}.")


class Int8Static:
    """The lever ``int8_static``."""

    name: ClassVar[str] = "int8_static"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.COMPUTE, Term.MEMORY, Term.LATENCY, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset(
        {"target", "compiler", "layout", "weights.dtype", "activations.dtype", "compute.dtype"}
    )
    consumes: ClassVar[frozenset[str]] = frozenset({Form.ONNX})
    produces: ClassVar[str] = Form.ONNX
    needs: ClassVar[frozenset[str]] = frozenset({"package:onnxruntime", "package:onnx", "calibration"})
    target: ClassVar[str] = _TARGET
    cites: ClassVar[str] = "Jacob et al. 2018, arXiv:1712.05877; Wu et al. 2020, arXiv:2004.09602 (calibration)"
    Settings: ClassVar[type] = Int8StaticSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        prediction = self.predict(candidate, Int8StaticSettings(), diagnosis, machine)
        return _int8.judge(candidate, diagnosis, machine, prediction, target=_TARGET, lever=self.name)

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """The natural activation type of this CPU first; then other calibrations, then the other type."""
        vnni = _int8.has_dot_product(machine)
        first, narrow = ("u8", False) if vnni else ("s8", True)
        other = "s8" if first == "u8" else "u8"
        scope = "weighted" if _int8.has_attention(diagnosis) else "all"  # softmax and norms have long tails
        small = candidate.goal.objective in (Objective.SIZE, Objective.MEMORY) and scope == "weighted"
        tries = [
            Int8StaticSettings(activation=first, scope=scope, embeddings=small),
            Int8StaticSettings(activation=first, calibration="percentile", scope=scope),
            Int8StaticSettings(activation=first, scope="weighted" if scope == "all" else "all"),
            Int8StaticSettings(activation=first, calibration="entropy", scope=scope),
            Int8StaticSettings(activation=other, scope=scope, reduce_range=narrow and other == "u8"),
            Int8StaticSettings(activation=first, scope=scope, per_channel=False),
        ]
        pass_s = _int8.pass_s(candidate, diagnosis)
        slow = {"minmax": 2.0, "percentile": 4.0, "entropy": 12.0}
        return [
            Option(settings=s, cost_s=6.0 + slow[s.calibration] * pass_s, alike=f"{s.activation} {s.scope}")
            for s in tries
        ]

    def predict(
        self, candidate: Candidate, settings: Int8StaticSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        moved = predict.moved(diagnosis, machine, target=_TARGET, dtype="int8", threads=candidate.execution.threads)
        if settings.activation == "u8" and not settings.reduce_range and not _int8.has_dot_product(machine):
            moved = dataclasses.replace(
                moved, basis=f"{moved.basis}; u8 x s8 pairs can saturate here: this CPU has no VNNI"
            )
        tables = settings.embeddings or settings.scope == "all"
        ops = _int8.with_embeddings(diagnosis, _int8.quantisable(diagnosis), tables)
        return _int8.for_goal(candidate, moved, ops, width=0.25)

    def apply(self, candidate: Candidate, settings: Int8StaticSettings) -> tuple[Candidate, Change]:
        """Pre-process, calibrate, quantise; ``facts`` say how many of how many operators were quantised."""
        out = Path(candidate.workspace) / "int8_static.onnx"
        with tempfile.TemporaryDirectory(dir=candidate.workspace) as scratch:
            ready = _onnx_int8.preprocess(Path(candidate.model.path), Path(scratch))
            used = _onnx_quantisers.static(ready, out, candidate, **dataclasses.asdict(settings))
            eligible = _onnx_int8.weighted(ready)
        return _onnx_int8.finish(
            self, candidate, settings, out, eligible=eligible, target=_TARGET, facts={"calibration_rows": used}
        )
