"""Weight-only quantisation for OpenVINO, by NNCF: linear layers with 8-bit weights a channel, or 4-bit ones in groups.

Why NNCF and not our own: it writes the patterns that the CPU plugin keeps compressed until the product, and it knows
which layers suffer from 4 bits. In its 4-bit modes it keeps the last layer and, below ``ratio`` 1, the most sensitive
ones at 8 bits: how many layers have which width is in the facts, never left unsaid. ``compute=float`` stops OpenVINO
from rounding rows to int8 in groups inside these products, as it does by itself. Convolutions are left alone, since
their weights are unpacked once at load and so save nothing while running.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.forms import files
from ironlaw.forms.telemetry import silence
from ironlaw.levers import _int8, _weight_only
from ironlaw.levers._openvino_ir import digest, outputs, sqnr_db
from ironlaw.levers._quiet import quiet
from ironlaw.levers._weight_only import Kernel, Packing
from ironlaw.records import (
    Axis,
    Candidate,
    Change,
    Diagnosis,
    Form,
    Interval,
    Kind,
    Machine,
    ModelFile,
    Objective,
    Op,
    Prediction,
    Scalar,
    Term,
    UserError,
)

_TARGET = "openvino"
_MODES = ("int8_sym", "int8_asym", "int4_sym", "int4_asym")
_GROUPS = (32, 64, 128)
_ASIDE = ("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData")
_TABLES = ("Gather",)
_WIDTHS = {"u8": 8, "i8": 8, "u4": 4, "i4": 4}
_PASSING = frozenset({"Convert", "Multiply", "Subtract", "Reshape", "Transpose"})
_SHARE = Interval(low=0.4, value=0.8, high=1.0)
_KERNELS = {
    "int8": Kernel(unpack=Interval(low=0.0, value=1.0, high=4.0), share=_SHARE),
    "float": Kernel(unpack=Interval(low=0.0, value=1.0, high=6.0)),
}
"""From timings on one CPU with AVX-512 and VNNI, 1 to 64 rows, inner dimension 1024, one thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightOnlyOpenVinoSettings:
    """``mode`` int8_sym, int8_asym, int4_sym or int4_asym; ``group`` weights share a scale in the 4-bit ones.

    ``ratio`` is the share of layers that become 4 bits wide, the others 8; ``all_layers`` counts the last layer among
    them. ``compute`` int8 lets the runtime round rows in groups, float does not. ``embeddings`` packs tables too.
    """

    mode: str = "int8_sym"
    group: int = 64
    ratio: float = 1.0
    all_layers: bool = False
    compute: str = _weight_only.ROUNDED
    embeddings: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("mode", self.mode, _MODES),
            ("group", self.group, _GROUPS),
            ("compute", self.compute, _weight_only.COMPUTES),
        ):
            if value not in known:
                words = ", ".join(map(str, known))
                raise UserError(f"weight_only_openvino {name}={value!r}", "is not known", f"Use one of {words}.")
        if not 0.0 <= self.ratio <= 1.0:
            raise UserError(f"weight_only_openvino ratio={self.ratio}", "is no share", "Use a number from 0 to 1.")

    @property
    def four(self) -> bool:
        """Whether some layers become 4 bits wide."""
        return self.mode.startswith("int4")


class WeightOnlyOpenVino:
    """The lever ``weight_only_openvino``."""

    name: ClassVar[str] = "weight_only_openvino"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.MEMORY})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"target", "compiler", "layout", "weights.dtype", "compute.dtype"})
    consumes: ClassVar[frozenset[str]] = frozenset({Form.OPENVINO})
    produces: ClassVar[str] = Form.OPENVINO
    needs: ClassVar[frozenset[str]] = frozenset({"package:openvino", "package:nncf"})
    target: ClassVar[str] = _TARGET
    cites: ClassVar[str] = (
        "Kozlov et al. 2021, arXiv:2002.08679 (NNCF); Frantar et al. 2022, arXiv:2210.17323 (groups); "
        "Williams et al. 2009 (roofline)"
    )
    Settings: ClassVar[type] = WeightOnlyOpenVinoSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        ops = _weight_only.linear(diagnosis, min(_GROUPS))
        tries = [(_packing(s, ops), _KERNELS[s.compute]) for s in _tries(candidate)]
        return _weight_only.judge(
            candidate, diagnosis, machine, lever=self.name, target=_TARGET, group=min(_GROUPS), tries=tries
        )

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """8 bits first, which rarely cost quality; then 4 bits in groups, spared where ``ratio`` is below 1."""
        return [Option(settings=s, cost_s=8.0, alike=f"{s.mode[:4]} {s.ratio:g}") for s in _tries(candidate)]

    def predict(
        self, candidate: Candidate, settings: WeightOnlyOpenVinoSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        ops = _weight_only.linear(diagnosis, settings.group if settings.four else min(_GROUPS))
        pack, kernel = _packing(settings, ops), _KERNELS[settings.compute]
        found = _weight_only.predicted(candidate, diagnosis, machine, ops, target=_TARGET, pack=pack, kernel=kernel)
        if not settings.four or (settings.all_layers and settings.ratio == 1.0):
            return found
        note = "nncf keeps the last layer and the least robust ones at 8 bits"
        return dataclasses.replace(found, basis=f"{found.basis}; {note}")

    def apply(self, candidate: Candidate, settings: WeightOnlyOpenVinoSettings) -> tuple[Candidate, Change]:
        """``facts`` count the layers of each width and name those that stay in float; none packed is a no-op."""
        silence()
        import openvino

        model = openvino.Core().read_model(candidate.model.path)
        sizes = layers(model)
        _refuse_not_finite(model)
        least = settings.group if settings.four else min(_GROUPS)
        spared = {name for name, size in sizes.items() if size < least}
        if len(spared) < len(sizes):
            with quiet():
                model = _compress(model, settings, spared)
        out = Path(candidate.workspace) / "weight_only_openvino.xml"
        openvino.save_model(model, str(out), compress_to_fp16=False)
        widths = packed(model)
        after, change = _int8.finished(
            self,
            candidate,
            settings,
            model=ModelFile(form=Form.OPENVINO, path=str(out), digest=digest(out)),
            target=_TARGET,
            eligible=frozenset(sizes),
            done=frozenset(widths),
            facts=_facts(candidate, out, widths, settings),
        )
        if settings.compute == "float":
            after = dataclasses.replace(after, execution=after.execution.with_options(round_rows=False))
        return after, change


def layers(model: Any) -> dict[str, int]:
    """Name of each product by a stored float matrix -> its inner dimension."""
    found = {}
    for op in model.get_ops():
        if op.get_type_name() == "MatMul" and (weight := _weight(op)) is not None:
            shape = list(weight.get_output_shape(0))
            if len(shape) >= 2 and str(weight.get_output_element_type(0).to_string()) in ("f32", "f16", "bf16"):
                found[op.get_friendly_name()] = int(shape[-1 if op.get_attributes()["transpose_b"] else -2])
    return found


def packed(model: Any) -> dict[str, int]:
    """Name of each product whose weight is stored in integers -> bits of that."""
    found = {}
    for op in model.get_ops():
        if op.get_type_name() == "MatMul" and (weight := _weight(op)) is not None:
            bits = _WIDTHS.get(str(weight.get_output_element_type(0).to_string()))
            if bits:
                found[op.get_friendly_name()] = bits
    return found


def _weight(op: Any) -> Any | None:
    """The constant behind the second operand, through conversions and unpacking; None for a computed one."""
    node = op.input_value(1).get_node()
    while node.get_type_name() in _PASSING:
        node = node.input_value(0).get_node()
    return node if node.get_type_name() == "Constant" else None


def _refuse_not_finite(model: Any) -> None:
    """Raises ``UserError`` that names the first product whose weight holds NaN or Inf."""
    import numpy as np

    for op in model.get_ops():
        weight = _weight(op) if op.get_type_name() == "MatMul" else None
        if weight is not None and not np.isfinite(weight.data.astype(np.float32)).all():
            name = f"weight {weight.get_friendly_name()!r} of {op.get_friendly_name()!r}"
            raise UserError(name, "holds NaN or Inf", "Repair the model before it is quantised.")


def _compress(model: Any, settings: WeightOnlyOpenVinoSettings, spared: set[str]) -> Any:
    import nncf

    nncf.set_log_level(logging.ERROR)
    aside = [*_ASIDE, *(() if settings.embeddings else _TABLES)]
    ignored = nncf.IgnoredScope(types=aside, names=sorted(spared), validate=False)
    mode = getattr(nncf.CompressWeightsMode, settings.mode.upper())
    if not settings.four:
        return nncf.compress_weights(model, mode=mode, ignored_scope=ignored)
    return nncf.compress_weights(
        model,
        mode=mode,
        group_size=settings.group,
        ratio=settings.ratio,
        all_layers=settings.all_layers,
        ignored_scope=ignored,
        advanced_parameters=nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST, min_adjusted_group_size=min(_GROUPS)
        ),
    )


def _facts(
    candidate: Candidate, out: Path, widths: dict[str, int], settings: WeightOnlyOpenVinoSettings
) -> dict[str, Scalar]:
    """Layers by width, bytes, and the noise on the example."""
    feed = list(files.example(candidate.snapshot, candidate.execution.batch).values())
    rounding = {} if settings.compute == _weight_only.ROUNDED else {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    before = outputs(Path(candidate.model.path), feed, candidate, {})
    noise_db = sqnr_db(before, outputs(out, feed, candidate, rounding))
    eight = sorted(name for name, bits in widths.items() if bits == 8)
    facts: dict[str, Scalar] = {
        "layers_int4": sum(bits == 4 for bits in widths.values()),
        "layers_int8": len(eight),
        "weights_bytes": out.with_suffix(".bin").stat().st_size,
        "sqnr_db": None if noise_db is None else round(noise_db, 1),
    }
    if settings.four:
        facts["kept_at_int8"] = ", ".join(re.sub(r"_\d+$", "", name) for name in eight[:20])
    return facts


def _tries(candidate: Candidate) -> list[WeightOnlyOpenVinoSettings]:
    small = candidate.goal.objective in (Objective.SIZE, Objective.MEMORY)
    return [
        WeightOnlyOpenVinoSettings(embeddings=small),
        WeightOnlyOpenVinoSettings(mode="int4_asym", embeddings=small),
        WeightOnlyOpenVinoSettings(mode="int4_asym", group=32, embeddings=small),
        WeightOnlyOpenVinoSettings(mode="int4_asym", ratio=0.8, embeddings=small),
    ]


def _packing(settings: WeightOnlyOpenVinoSettings, ops: Sequence[Op]) -> Packing:
    """Scales are 2 bytes; in the 4-bit modes the layers that stay at 8 bits count by their share of the weights."""
    asymmetric = settings.mode.endswith("_asym")
    if not settings.four:
        return _weight_only.packing(bits=8, group=1024, scale_bytes=2.0, zero_bytes=float(asymmetric))
    zero = 0.5 if asymmetric else 0.0
    narrow = _weight_only.packing(bits=4, group=settings.group, scale_bytes=2.0, zero_bytes=zero)
    kept = 1.0 - settings.ratio * (1.0 if settings.all_layers else 1.0 - _last_share(ops))
    return dataclasses.replace(narrow, extra_bytes=narrow.extra_bytes + 0.5 * kept)


def _last_share(ops: Sequence[Op]) -> float:
    """The last linear layer's share of the weights, as far as a ledger that adds equal ones up shows it."""
    total = sum(op.weights_bytes for op in ops)
    return ops[-1].weights_bytes / max(1, ops[-1].calls) / total if total else 0.0
