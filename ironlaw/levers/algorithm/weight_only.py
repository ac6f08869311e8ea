"""Weight-only quantisation for ONNX Runtime: linear layers keep their activations, weights take 8 or 4 bits in groups.

Why beside the int8 levers: one row streams every weight once, so its time is their bytes, and this lever changes
nothing else. Groups of 32 to 128 weights share a scale, which is why 4 bits stay usable. ``compute`` says what the
kernel does with a row inside: ``int8`` rounds it in groups (fast), ``float`` keeps it. ONNX Runtime 1.32 has no float
kernel for 8 bits, nor any for the float zero points of HQQ: it unpacks the whole matrix in each call, which is several
times slower than float; the prediction says so, and neither is offered by itself. Symmetric GPTQ is refused: what that
release writes was worse than rounding to nearest (9 dB against 12). Layers narrower than a group stay in float, by
name, and so do those with an odd number of groups under GPTQ, whose zero points that release cannot pack.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.forms import batch as batches
from ironlaw.forms import files
from ironlaw.levers import _calibration_data, _int8, _onnx_int8, _onnx_linear, _weight_only
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
    Prediction,
    Term,
    UserError,
)

_TARGET = "onnxruntime"
_METHODS = ("rtn", "gptq", "hqq")
_GROUPS = (32, 64, 128)
_ROUNDED_LEVEL = 4
"""``accuracy_level`` of MatMulNBits that lets a kernel round rows to int8."""
_SHARE = Interval(low=0.5, value=0.8, high=1.2)
_KERNELS = {
    (8, "int8"): Kernel(unpack=Interval(low=0.0, value=1.0, high=4.0), share=_SHARE),
    (4, "int8"): Kernel(unpack=Interval(low=0.0, value=1.0, high=4.0), share=_SHARE),
    (8, "float"): Kernel(unpack=Interval(low=80.0, value=140.0, high=190.0)),
    (4, "float"): Kernel(
        unpack=Interval(low=5.0, value=12.0, high=20.0), unpack_row=Interval(low=2.0, value=4.0, high=8.0)
    ),
}
"""From timings on one CPU with AVX-512 and VNNI, 1 to 64 rows, inner dimension 1024, one thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightOnlySettings:
    """``bits`` 8 or 4; ``group`` weights share a scale; ``symmetric`` drops zero points; ``compute`` int8 or float.

    ``method`` rtn rounds to nearest; gptq corrects with calibration batches what rounding did (4 bits, asymmetric);
    hqq fits zero points in float without data (4 bits, asymmetric, no fast kernel).
    """

    bits: int = 8
    group: int = 32
    symmetric: bool = True
    compute: str = _weight_only.ROUNDED
    method: str = "rtn"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("bits", self.bits, (4, 8)),
            ("group", self.group, _GROUPS),
            ("compute", self.compute, _weight_only.COMPUTES),
            ("method", self.method, _METHODS),
        ):
            if value not in known:
                words = ", ".join(map(str, known))
                raise UserError(f"weight_only {name}={value!r}", "is not known", f"Use one of {words}.")
        if self.method != "rtn" and (self.bits != 4 or self.symmetric):
            raise UserError(
                f"weight_only method={self.method!r} bits={self.bits} symmetric={self.symmetric}",
                "is for 4 bits and asymmetric weights only",
                "Use bits=4 and symmetric=False, or method='rtn'.",
            )


class WeightOnly:
    """The lever ``weight_only``."""

    name: ClassVar[str] = "weight_only"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.MEMORY})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"target", "compiler", "layout", "weights.dtype", "compute.dtype"})
    consumes: ClassVar[frozenset[str]] = frozenset({Form.ONNX})
    produces: ClassVar[str] = Form.ONNX
    needs: ClassVar[frozenset[str]] = frozenset({"package:onnxruntime", "package:onnx"})
    target: ClassVar[str] = _TARGET
    cites: ClassVar[str] = (
        "Frantar et al. 2022, arXiv:2210.17323 (GPTQ); Badri and Shaji 2023, Half-Quadratic Quantization (HQQ); "
        "Williams et al. 2009 (roofline)"
    )
    Settings: ClassVar[type] = WeightOnlySettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        tries = [(_packing(s), _kernel(s)) for s in _tries(candidate)]
        return _weight_only.judge(
            candidate, diagnosis, machine, lever=self.name, target=_TARGET, group=min(_GROUPS), tries=tries
        )

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """8 bits first, which rarely cost quality; then 4 bits, with smaller groups before larger ones."""
        pass_s = _int8.pass_s(candidate, diagnosis)
        return [
            Option(
                settings=s,
                cost_s=4.0 if s.method == "rtn" else 15.0 + 2.0 * pass_s,
                alike=f"{s.bits} bits {s.compute}",
            )
            for s in _tries(candidate)
        ]

    def predict(
        self, candidate: Candidate, settings: WeightOnlySettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        return _weight_only.predicted(
            candidate,
            diagnosis,
            machine,
            _weight_only.linear(diagnosis, settings.group),
            target=_TARGET,
            pack=_packing(settings),
            kernel=_kernel(settings),
        )

    def apply(self, candidate: Candidate, settings: WeightOnlySettings) -> tuple[Candidate, Change]:
        """``facts`` say how many of how many linear layers were packed, and name those that stay in float."""
        out = Path(candidate.workspace) / "weight_only.onnx"
        facts: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(dir=candidate.workspace) as scratch:
            ready = _onnx_linear.prepare(Path(candidate.model.path), Path(scratch))
            found = _onnx_linear.layers(ready)
            chosen = frozenset(name for name, size in found.items() if _takes(size, settings))
            _onnx_linear.refuse_not_finite(ready, chosen)
            feeds: list[dict[str, Any]] = []
            if settings.method == "gptq":
                fixed = batches.batch_of(ready, candidate.snapshot.inputs)
                feeds, facts["calibration_rows"] = _calibration_data.feeds(candidate, fixed, 0)
            _quantise(ready, out, settings, spared=frozenset(found) - chosen, feeds=feeds)
        return _int8.finished(
            self,
            candidate,
            settings,
            model=files.model_file(Form.ONNX, out),
            target=_TARGET,
            eligible=frozenset(found),
            done=packed(out),
            facts={"model_bytes": out.stat().st_size, **facts},
        )


def packed(path: Path) -> frozenset[str]:
    """Names of the layers that now have packed weights, as they were called in float."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    return frozenset(node.name.rpartition("_Q")[0] for node in graph.node if node.op_type == "MatMulNBits")


def _takes(size: int, settings: WeightOnlySettings) -> bool:
    """Whether a layer with that inner dimension holds a group, and a number of them that the method can pack."""
    return size >= settings.group and (settings.method != "gptq" or -(-size // settings.group) % 2 == 0)


def _tries(candidate: Candidate) -> list[WeightOnlySettings]:
    tries = [
        WeightOnlySettings(),
        WeightOnlySettings(bits=4, symmetric=False),
        WeightOnlySettings(bits=4, group=128, symmetric=False),
        WeightOnlySettings(bits=4, symmetric=False, compute="float"),
    ]
    if candidate.snapshot.calibration_batches:
        tries.insert(2, WeightOnlySettings(bits=4, symmetric=False, method="gptq"))
    return tries


def _kernel(settings: WeightOnlySettings) -> Kernel:
    """HQQ's float zero points unpack as 8 bits in float do."""
    return _KERNELS[8, "float"] if settings.method == "hqq" else _KERNELS[settings.bits, settings.compute]


def _packing(settings: WeightOnlySettings) -> Packing:
    zero = 0.0 if settings.symmetric else 4.0 if settings.method == "hqq" else settings.bits / 8.0
    return _weight_only.packing(bits=settings.bits, group=settings.group, scale_bytes=4.0, zero_bytes=zero)


def _quantise(
    ready: Path, out: Path, settings: WeightOnlySettings, *, spared: frozenset[str], feeds: list[dict[str, Any]]
) -> None:
    """Write the model with packed weights to ``out``, nodes in the order of ``ready`` and tensors by name."""
    import onnx
    from onnxruntime.quantization import matmul_nbits_quantizer as ort

    model = onnx.load(str(ready))
    order = {node.output[0]: place for place, node in enumerate(model.graph.node)}
    hidden = _onnx_linear.hide(model.graph, spared) if settings.method == "gptq" else {}
    with quiet():
        quantiser = ort.MatMulNBitsQuantizer(
            model,
            bits=settings.bits,
            block_size=settings.group,
            is_symmetric=settings.symmetric,
            accuracy_level=_level(settings),
            nodes_to_exclude=sorted(spared),
            algo_config=_configuration(settings, feeds),
        )
        quantiser.process()
    done = quantiser.model.model
    _onnx_linear.show(done.graph, hidden)
    _arrange(done.graph, order)
    large = done.ByteSize() > _onnx_int8.LARGE_BYTES
    onnx.save(done, str(out), save_as_external_data=large, location=f"{out.name}.data")


def _level(settings: WeightOnlySettings) -> int:
    return _ROUNDED_LEVEL if settings.compute == _weight_only.ROUNDED else 0


def _configuration(settings: WeightOnlySettings, feeds: list[dict[str, Any]]) -> Any:
    from onnxruntime.quantization import matmul_nbits_quantizer as ort

    if settings.method == "gptq":
        return ort.GPTQWeightOnlyQuantConfig(feeds)
    if settings.method == "hqq":
        return ort.HQQWeightOnlyQuantConfig(block_size=settings.group, bits=settings.bits)
    return ort.DefaultWeightOnlyQuantConfig(
        block_size=settings.group,
        is_symmetric=settings.symmetric,
        accuracy_level=_level(settings),
        bits=settings.bits,
    )


def _arrange(graph: Any, order: dict[str, int]) -> None:
    """Nodes as they were, and tensors once and by name: quantisers leave the order of a set, and shared ones twice."""
    place, nodes = -1, []
    for node in graph.node:
        place = order.get(node.output[0], place)
        nodes.append((place, node))
    sorted_nodes = [node for _, node in sorted(nodes, key=lambda pair: pair[0])]
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    del graph.node[:], graph.initializer[:]
    graph.node.extend(sorted_nodes)
    graph.initializer.extend(tensors[name] for name in sorted(tensors))
