"""Reads what OpenVINO really runs: its execution graph and its performance counters.

The intermediate representation says what was asked; only the execution graph says which primitive and
precision each layer got. OpenVINO picks bf16 by itself where the CPU has it, and an int8 model whose
layers found no int8 kernel still loads: both show here and nowhere else. Compressed weights show as the runtime
precision of a layer whose primitive is a float one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw.measure import kinds
from ironlaw.records import Certificate, Op

WEIGHTED = frozenset({"Convolution", "Deconvolution", "FullyConnected", "RNNCell", "RNNSeq", "LoRA"})
_PRODUCTS = frozenset({"FullyConnected", "MatMul"})
_KINDS = {
    "Convolution": "conv",
    "Deconvolution": "conv",
    "FullyConnected": "matmul",
    "MatMul": "matmul",
    "ScaledDotProductAttention": "attention",
    "MHA": "attention",
    "RNNCell": "recurrent",
    "RNNSeq": "recurrent",
    "Pooling": "pool",
    "AdaptivePooling": "pool",
    "Softmax": "softmax",
    "LogSoftmax": "softmax",
    "MVN": "norm",
    "NormalizeL2": "norm",
    "RMS": "norm",
    "Eltwise": "elementwise",
    "Subgraph": "elementwise",
    "FakeQuantize": "elementwise",
    "Reduce": "reduce",
    "TopK": "reduce",
    "Gather": "embedding",
    "Reorder": "copy",
    "Transpose": "copy",
    "Concatenation": "copy",
    "Split": "copy",
    "StridedSlice": "copy",
    "Broadcast": "copy",
    "Pad": "copy",
    "Convert": "copy",
    "Interpolate": "elementwise",
    "Reshape": "view",
    "Identity": "view",
}
_PASSES_ON = frozenset({"Transpose", "Reshape", "Reorder", "Convert", "FakeQuantize", "Subgraph", "Eltwise"})
_NOT_RUN = frozenset({"Input", "Output", "Const"})
_PACKED_BITS = {"i8": 8, "u8": 8, "i4": 4, "u4": 4}
_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "int8"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A node of the execution graph. ``weights`` is the shape of its largest constant operand, () for none."""

    name: str
    layer: str
    primitive: str
    precision: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    weights: tuple[int, ...]
    weights_bytes: int
    fed_by: tuple[str, ...]

    @property
    def bits(self) -> int:
        """Of compressed weights under float arithmetic; 0 where weights are as wide as the arithmetic."""
        return _PACKED_BITS.get(self.precision, 0) if self.dtype != "int8" else 0

    @property
    def shown(self) -> str:
        """The precision for people: of the arithmetic, and of the weights where those are compressed."""
        return f"int{self.bits} weights, {self.dtype}" if self.bits else self.dtype

    @property
    def dtype(self) -> str:
        """Of the arithmetic: int8 when the primitive's name says so, else the runtime precision."""
        suffix = self.primitive.rsplit("_", 1)[-1].lower()
        return _DTYPES.get(suffix) or _DTYPES.get(self.precision, self.precision)


def layers(runtime_model: Any) -> tuple[Layer, ...]:
    """The layers that run, in execution order."""
    found = []
    for node in runtime_model.get_ops():
        info = _info(node)
        if info["layerType"] in _NOT_RUN:
            continue
        parents = [value.get_node() for value in node.input_values()]
        constants = [p for p in parents if _is_constant(p)]
        largest = max(constants, key=lambda p: math.prod(_shape(p)), default=None)
        found.append(
            (
                int(info["execOrder"]),
                Layer(
                    name=node.get_friendly_name(),
                    layer=info["layerType"],
                    primitive=info["primitiveType"],
                    precision=info["runtimePrecision"],
                    inputs=tuple(_shape(p) for p in parents if p not in constants),
                    output=_shape(node),
                    weights=_shape(largest) if largest is not None else (),
                    weights_bytes=sum(_bytes(p) for p in constants),
                    fed_by=tuple(_info(p)["layerType"] for p in parents),
                ),
            )
        )
    return tuple(layer for _, layer in sorted(found, key=lambda pair: pair[0]))


def certificate(graph: tuple[Layer, ...], *, precision: str, threads: int, facts: Mapping[str, object]) -> Certificate:
    """Layers with weights, how many are narrow, and what fell back.

    Narrow is int8 arithmetic, compressed weights, or bf16 where that was asked.
    """
    wanted = {"int8", "bfloat16"} if precision == "bf16" else {"int8"}
    eligible = [layer for layer in graph if _has_weights(layer)]
    mixed = any(layer.dtype == "int8" or layer.bits for layer in eligible)
    converted = [layer for layer in eligible if layer.dtype in wanted or layer.bits]
    return Certificate(
        eligible=len(eligible),
        converted=len(converted),
        precisions=tuple((layer.name, layer.shown) for layer in eligible),
        fallbacks=tuple(layer.name for layer in eligible if _fell_back(layer, precision, mixed)),
        providers=(("CPU", len(graph)),),
        threads=threads,
        proven=bool(graph),
        evidence=(
            f"execution graph: {_counts(layer.layer for layer in graph)}",
            f"primitives of layers with weights: {_counts(layer.primitive for layer in eligible)}",
            "compiled model: " + ", ".join(f"{name}={value}" for name, value in facts.items()),
        ),
    )


def ops(graph: tuple[Layer, ...], seconds: Mapping[str, float]) -> tuple[Op, ...]:
    """One Op a layer that took time: seconds, FLOPs and bytes of one call."""
    return tuple(_op(layer, seconds[layer.name]) for layer in graph if seconds.get(layer.name, 0.0) > 0)


def flops(layer: Layer) -> float | None:
    """FLOPs (an FMA is two); None where a constant operand that is needed is not in the graph."""
    size = math.prod(layer.output)
    if layer.layer == "Convolution":
        grouped = len(layer.weights) == len(layer.output) + 1
        return 2.0 * size * math.prod(layer.weights[2 if grouped else 1 :]) if layer.weights else None
    if layer.layer == "Deconvolution":
        return 2.0 * math.prod(layer.inputs[0]) * math.prod(layer.weights[1:]) if layer.weights else None
    if layer.layer in _PRODUCTS:
        return 2.0 * size * layer.inputs[0][-1]
    if layer.layer in ("RNNCell", "RNNSeq", "ScaledDotProductAttention", "MHA"):
        return None
    return 0.0 if _kind(layer) in ("copy", "view", "embedding") else float(size)


def roots(runtime_model: Any) -> dict[str, str]:
    """Each layer's name -> the name of an input of the model that it depends on ("" for none)."""
    found: dict[str, str] = {}
    for node in runtime_model.get_ordered_ops():
        if node.get_type_name() == "Parameter":
            found[node.get_friendly_name()] = node.get_friendly_name()
            continue
        above = [found.get(value.get_node().get_friendly_name(), "") for value in node.input_values()]
        found[node.get_friendly_name()] = next((name for name in above if name), "")
    return found


def _op(layer: Layer, time_s: float) -> Op:
    width = {"int8": 1, "bfloat16": 2, "float16": 2}.get(layer.dtype, 4)
    moved = width * (sum(math.prod(shape) for shape in layer.inputs) + math.prod(layer.output))
    return Op(
        name=layer.name,
        kind=_kind(layer),
        calls=1,
        flops=flops(layer),
        bytes_low=float(layer.weights_bytes),
        bytes_high=float(layer.weights_bytes + moved),
        dtype=layer.dtype,
        shape="; ".join("x".join(map(str, s)) for s in (*layer.inputs[:2], layer.output)),
        weights_bytes=float(layer.weights_bytes),
        time_s=time_s,
    )


def _kind(layer: Layer) -> str:
    if layer.layer == "Convolution" and len(layer.weights) == len(layer.output) + 1:
        return kinds.conv_kind(layer.weights[0], layer.weights[2])
    return _KINDS.get(layer.layer, kinds.onnx_kind(layer.layer))


def _has_weights(layer: Layer) -> bool:
    """A convolution, product or recurrent layer, or a fused subgraph that holds a matrix of weights."""
    matrix = sum(d > 1 for d in layer.weights) >= 2
    return layer.layer in WEIGHTED or (layer.layer in ("MatMul", "Subgraph") and matrix)


def _fell_back(layer: Layer, precision: str, mixed: bool) -> bool:
    """Float where others run in int8, fed by a FakeQuantize, or in another precision than the one asked for."""
    if layer.dtype == "int8" or layer.bits:
        return False
    asked = {"fp32": "float32", "bf16": "bfloat16"}[precision]
    return mixed or "FakeQuantize" in layer.fed_by or layer.dtype != asked


def _info(node: Any) -> dict[str, str]:
    return {key: str(value.value) for key, value in node.get_rt_info().items()}


def _is_constant(node: Any) -> bool:
    """A stored weight, or one that is only moved or converted before it is used."""
    layer = _info(node)["layerType"]
    if layer not in _PASSES_ON:
        return layer == "Const"
    return all(_is_constant(value.get_node()) for value in node.input_values())


def _shape(node: Any) -> tuple[int, ...]:
    shape = node.get_output_partial_shape(0)
    return tuple(int(d) for d in shape.to_shape()) if shape.is_static else ()


def _bytes(node: Any) -> int:
    bits: int = node.get_output_element_type(0).bitwidth
    return math.ceil(math.prod(_shape(node)) * bits / 8)


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in Counter(names).most_common())
