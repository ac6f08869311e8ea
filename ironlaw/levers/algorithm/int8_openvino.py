"""Static int8 for OpenVINO through NNCF: FakeQuantize on the intermediate representation.

Why NNCF and not our own: it knows which patterns the CPU plugin runs in int8, equalises channels and corrects biases.
Its ``mixed`` preset uses asymmetric activations (better for GELU and Swish), ``performance`` symmetric ones
(faster). It refuses to guess data: without calibration batches it does not run, and it never reports usage
over the network.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.forms import files
from ironlaw.forms.telemetry import silence
from ironlaw.levers import _calibration_data, _int8
from ironlaw.levers._openvino_ir import digest, fixed_batch, outputs, sqnr_db
from ironlaw.levers._quiet import quiet
from ironlaw.records import (
    Axis,
    Candidate,
    Change,
    Diagnosis,
    Form,
    Kind,
    Machine,
    ModelFile,
    Prediction,
    Term,
    UserError,
)

_TARGET = "openvino"
_BROKEN_DB = 6.0
"""Below this, half the signal's amplitude is noise: no quantisation does that by itself."""
_PRESETS = {"mixed": "MIXED", "performance": "PERFORMANCE"}
_WEIGHTED = frozenset(
    {"Convolution", "GroupConvolution", "ConvolutionBackpropData", "MatMul", "LSTMSequence", "LSTMCell"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Int8OpenVinoSettings:
    """``preset`` mixed or performance; ``fast_bias`` corrects biases from statistics, else layer by layer.

    ``transformer`` tells NNCF to spare what hurts in attention blocks; ``rows`` bounds calibration examples.
    """

    preset: str = "mixed"
    fast_bias: bool = True
    transformer: bool = False
    rows: int = 300

    def __post_init__(self) -> None:
        if self.preset not in _PRESETS:
            raise UserError(f"int8_openvino preset={self.preset!r}", "is not known", f"Use {', '.join(_PRESETS)}.")


class Int8OpenVino:
    """The lever ``int8_openvino``."""

    name: ClassVar[str] = "int8_openvino"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.COMPUTE, Term.MEMORY, Term.LATENCY, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset(
        {"target", "compiler", "layout", "weights.dtype", "activations.dtype", "compute.dtype"}
    )
    consumes: ClassVar[frozenset[str]] = frozenset({Form.OPENVINO})
    produces: ClassVar[str] = Form.OPENVINO
    needs: ClassVar[frozenset[str]] = frozenset({"package:openvino", "package:nncf", "calibration"})
    target: ClassVar[str] = _TARGET
    cites: ClassVar[str] = "Kozlov et al. 2021, arXiv:2002.08679 (NNCF); Nagel et al. 2019, arXiv:1906.04721"
    Settings: ClassVar[type] = Int8OpenVinoSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        prediction = self.predict(candidate, Int8OpenVinoSettings(), diagnosis, machine)
        return _int8.judge(candidate, diagnosis, machine, prediction, target=_TARGET, lever=self.name)

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        transformer = _int8.has_attention(diagnosis)
        tries = [
            Int8OpenVinoSettings(transformer=transformer),
            Int8OpenVinoSettings(transformer=transformer, preset="performance"),
            Int8OpenVinoSettings(transformer=transformer, fast_bias=False),
        ]
        pass_s = _int8.pass_s(candidate, diagnosis)
        return [Option(settings=s, cost_s=10.0 + (4 if s.fast_bias else 30) * pass_s, alike=s.preset) for s in tries]

    def predict(
        self, candidate: Candidate, settings: Int8OpenVinoSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        threads = candidate.execution.threads
        moved = predict.moved(diagnosis, machine, target=_TARGET, dtype="int8", threads=threads)
        return _int8.for_goal(candidate, moved, _int8.quantisable(diagnosis), width=0.25)

    def apply(self, candidate: Candidate, settings: Int8OpenVinoSettings) -> tuple[Candidate, Change]:
        """``facts`` say how many of how many layers with weights have quantised operands; none is a no-op."""
        silence()
        import openvino

        model = openvino.Core().read_model(candidate.model.path)
        eligible = weighted(model)
        feeds, used = _calibration_data.feeds(candidate, fixed_batch(model), settings.rows)
        with quiet():
            quantised_model = _quantise(model, feeds, settings)
        done = quantised(quantised_model)
        out = Path(candidate.workspace) / "int8_openvino.xml"
        openvino.save_model(quantised_model, str(out), compress_to_fp16=False)
        noise_db, snippets = _checked(candidate, Path(candidate.model.path), out)
        after, change = _int8.finished(
            self,
            candidate,
            settings,
            model=ModelFile(form=Form.OPENVINO, path=str(out), digest=digest(out)),
            target=_TARGET,
            eligible=eligible,
            done=done,
            facts={
                "calibration_rows": used,
                "weights_bytes": out.with_suffix(".bin").stat().st_size,
                "sqnr_db": None if noise_db is None else round(noise_db, 1),
                "snippets": snippets,
            },
        )
        if not snippets:
            after = dataclasses.replace(after, execution=after.execution.with_options(snippets=False))
        return after, change


def _checked(candidate: Candidate, before: Path, after: Path) -> tuple[float | None, bool]:
    """Signal to quantisation noise on the example, and whether fused subgraphs may stay.

    OpenVINO 2026.4 fuses some int8 perceptrons into a subgraph that computes garbage, which shows here as a ratio
    near or below 0 dB that is well above it once they are kept apart.
    """
    feed = list(files.example(candidate.snapshot, candidate.execution.batch).values())
    reference = outputs(before, feed, candidate, {})
    fused = sqnr_db(reference, outputs(after, feed, candidate, {}))
    if fused is None or fused >= _BROKEN_DB:
        return fused, True
    apart = sqnr_db(reference, outputs(after, feed, candidate, {"SNIPPETS_MODE": "DISABLE"}))
    return (apart, False) if apart is None or apart > fused + _BROKEN_DB else (fused, True)


def weighted(model: Any) -> frozenset[str]:
    """Names of convolutions, products and recurrent layers with a stored weight."""
    return frozenset(
        op.get_friendly_name()
        for op in model.get_ops()
        if op.get_type_name() in _WEIGHTED and any(_from_constant(v.get_node()) for v in op.input_values()[1:])
    )


def quantised(model: Any) -> frozenset[str]:
    """Of those, the ones whose activation and weight both come through a FakeQuantize."""
    out = set()
    for op in model.get_ops():
        if op.get_type_name() in _WEIGHTED:
            operands = [value.get_node() for value in op.input_values()]
            if _is_quantised(operands[0]) and any(_from_constant(n) and _is_quantised(n) for n in operands[1:]):
                out.add(op.get_friendly_name())
    return frozenset(out)


def _quantise(model: Any, feeds: list[dict[str, Any]], settings: Int8OpenVinoSettings) -> Any:
    import nncf

    nncf.set_log_level(logging.ERROR)
    return nncf.quantize(
        model,
        nncf.Dataset(feeds),
        preset=getattr(nncf.QuantizationPreset, _PRESETS[settings.preset]),
        target_device=nncf.TargetDevice.CPU,
        subset_size=len(feeds),
        fast_bias_correction=settings.fast_bias,
        model_type=nncf.ModelType.TRANSFORMER if settings.transformer else None,
    )


_PASSING = frozenset({"Convert", "Reshape", "Transpose", "Multiply", "Subtract", "FakeQuantize", "Unsqueeze"})


def _from_constant(node: Any) -> bool:
    if node.get_type_name() == "Constant":
        return True
    return node.get_type_name() in _PASSING and _from_constant(node.input_value(0).get_node())


def _is_quantised(node: Any) -> bool:
    """FakeQuantize, or (for weights already compressed to integers) a dequantising chain from an int8 constant."""
    kind = node.get_type_name()
    if kind == "FakeQuantize":
        return True
    if kind == "Constant":
        return str(node.get_element_type()) in ("<Type: 'int8_t'>", "<Type: 'uint8_t'>")
    if kind in _PASSING or kind in ("MaxPool", "Relu", "Concat", "Squeeze"):
        return _is_quantised(node.input_value(0).get_node())
    return False
