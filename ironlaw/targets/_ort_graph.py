"""Reads what ONNX Runtime really runs: its optimised graph and its profile.

A QDQ file says what was asked; only the optimised graph says which operators became int8 kernels. An
operator with a DequantizeLinear in front of it runs in float and pays for the conversion besides, so
it counts as a fallback and never as converted. A MatMulNBits is converted by its weights: they are stored in a few
bits, while its arithmetic is int8 only where its ``accuracy_level`` allows that.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw.measure import kinds
from ironlaw.records import Certificate, Op

_WEIGHTED = frozenset(
    {"Conv", "ConvTranspose", "MatMul", "Gemm", "FusedConv", "FusedMatMul", "FusedGemm", "LSTM", "GRU"}
)
_INT8 = frozenset(
    {
        "QLinearConv",
        "QLinearMatMul",
        "QGemm",
        "ConvInteger",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "DynamicQuantizeLSTM",
        "QAttention",
    }
)
_PACKED = "MatMulNBits"
_INT8_LEVEL = 4
"""``accuracy_level`` of a MatMulNBits from which its rows may be rounded to int8."""
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_DTYPES = {
    "float": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "double": "float64",
    "uint8": "int8",
    "int8": "int8",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node of the optimised graph. ``weights`` maps operand position to the shape of a constant.

    ``arithmetic`` is int8 or float32 where the operator itself says so, else ""; ``bits`` is that of packed weights,
    0 for others.
    """

    name: str
    op: str
    weights: dict[int, tuple[int, ...]]
    weights_bytes: int
    group: int
    dequantised: bool
    arithmetic: str = ""
    bits: int = 0

    @property
    def converted(self) -> bool:
        """Whether its arithmetic or its weights are narrow."""
        return self.arithmetic == "int8" or self.bits > 0

    @property
    def precision(self) -> str:
        """``int8``, or what is narrow in a product with packed weights: ``int4 weights, float32``."""
        return f"int{self.bits} weights, {self.arithmetic}" if self.bits else self.arithmetic


def read_profile(path: str) -> list[dict[str, Any]]:
    """Kernel events of a profile, in the order in which they ran."""
    events = json.loads(Path(path).read_text())
    return [e for e in events if e.get("cat") == "Node" and str(e.get("name", "")).endswith("_kernel_time")]


def read_graph(path: str) -> tuple[Node, ...]:
    """The nodes of the graph in that file, in order. Weights beside it are not loaded."""
    import onnx

    return nodes(onnx.load(path, load_external_data=False))


def input_names(path: Path) -> list[str]:
    """Names of the inputs that must be fed: those without a stored value."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {w.name for w in graph.initializer}
    return [i.name for i in graph.input if i.name not in stored]


def nodes(model: Any) -> tuple[Node, ...]:
    """The nodes of a loaded model, with the constants that they read."""
    graph = model.graph
    shapes = {w.name: tuple(w.dims) for w in graph.initializer}
    sizes = {w.name: _tensor_bytes(w) for w in graph.initializer}
    made_by = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type in ("DequantizeLinear", "Transpose") and node.input[0] in shapes:
            shapes[node.output[0]] = shapes[node.input[0]]
            sizes[node.output[0]] = sizes[node.input[0]]
    found = []
    for position, node in enumerate(graph.node):
        weights = {i: shapes[name] for i, name in enumerate(node.input) if name in shapes}
        makers = [made_by[name].op_type for name in node.input if name in made_by]
        numbers = {a.name: a.i for a in node.attribute}
        arithmetic, bits = _narrow(node.op_type, numbers)
        found.append(
            Node(
                name=node.name or f"{node.op_type}_{position}",
                op=node.op_type,
                weights=weights,
                weights_bytes=sum(sizes[name] for name in node.input if name in shapes),
                group=numbers.get("group", 1),
                dequantised="DequantizeLinear" in makers,
                arithmetic=arithmetic,
                bits=bits,
            )
        )
    return tuple(found)


def _narrow(op: str, numbers: dict[str, int]) -> tuple[str, int]:
    """Arithmetic and bits of packed weights, as the operator and its integer attributes say."""
    if op == _PACKED:
        level = numbers.get("accuracy_level", 0)
        return "int8" if level >= _INT8_LEVEL else "float32", numbers.get("bits", 4)
    return ("int8" if op in _INT8 else ""), 0


def certificate(events: list[dict[str, Any]], graph: tuple[Node, ...], *, provider: str, threads: int) -> Certificate:
    """Eligible and converted operators, precision of each, and what fell back, by name."""
    eligible = [n for n in graph if n.converted or (n.op in _WEIGHTED and _has_weight(n))]
    converted = [n for n in eligible if n.converted]
    floats = [n for n in eligible if not n.converted]
    by_provider = Counter(str(e["args"].get("provider", "")) for e in _last_call(events))
    elsewhere = sorted({_event_name(e) for e in events if e["args"].get("provider") != provider})
    dtype = {_event_name(e): _event_dtype(e) for e in events}
    precisions = {n.name: n.precision or dtype.get(n.name, "float32") for n in eligible}
    return Certificate(
        eligible=len(eligible),
        converted=len(converted),
        precisions=tuple(precisions.items()),
        fallbacks=(*(n.name for n in floats if n.dequantised), *elsewhere),
        providers=tuple(by_provider.items()),
        threads=threads,
        proven=bool(events) and bool(graph),
        evidence=(
            f"optimised graph: {_counts(n.op for n in graph)}",
            f"profile: {sum(by_provider.values())} nodes a call on {', '.join(by_provider)}",
            f"threads in the session's pools and the caller: {threads} (from the process's task list)",
        ),
    )


def ops(events: list[dict[str, Any]], graph: tuple[Node, ...], calls: int) -> tuple[Op, ...]:
    """One Op a node: seconds, FLOPs and bytes of one call of the model, mean over the last ``calls``."""
    by_name = {node.name: node for node in graph}
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["args"].get("op_name") not in _CONTROL_FLOW:
            runs[_event_name(event)].append(event)
    total_calls = _calls(events)
    out = []
    for name, seen in runs.items():
        per_call = max(1, len(seen) // total_calls)
        kept = seen[-per_call * calls :]
        out.append(_op(name, kept, by_name.get(name), per_call))
    return tuple(out)


def node_flops(op: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], node: Node | None) -> float | None:
    """FLOPs (an FMA is two) of a convolution or matrix product; one an output element for
    others, none for those that only move data.

    None where the weights cannot be found: unknown is never zero.
    """
    size = math.prod(output)
    if op in ("Conv", "FusedConv", "QLinearConv", "ConvInteger", "NhwcFusedConv", "ConvTranspose"):
        weight = next((w for w in (node.weights if node else {}).values() if len(w) >= 3), None)
        if weight is None:
            return None
        if op == "ConvTranspose":
            return 2.0 * math.prod(inputs[0]) * math.prod(weight[1:])
        return 2.0 * size * math.prod(weight[1:])
    if op in _INT8 or op in (_PACKED, "MatMul", "Gemm", "FusedMatMul", "FusedGemm"):
        inner = inputs[0][-1] if inputs and inputs[0] else None
        return None if inner is None else 2.0 * size * inner
    return 0.0 if kinds.onnx_kind(op) in ("copy", "view", "embedding") else float(size)


def _op(name: str, runs: list[dict[str, Any]], node: Node | None, per_call: int) -> Op:
    args = runs[-1]["args"]
    op_name = str(args.get("op_name", ""))
    inputs, output = _shapes(args.get("input_type_shape")), (_shapes(args.get("output_type_shape")) or [()])[0]
    weights = float(node.weights_bytes) if node else float(args.get("parameter_size", 0) or 0)
    moved = float(args.get("activation_size", 0) or 0) + float(args.get("output_size", 0) or 0)
    flops = node_flops(op_name, inputs, output, node)
    return Op(
        name=name,
        kind=_kind(op_name, node),
        calls=per_call,
        flops=None if flops is None else flops * per_call,
        bytes_low=weights * per_call,
        bytes_high=(weights + moved) * per_call,
        dtype=_dtype(op_name, node) or _event_dtype(runs[-1]),
        shape="; ".join("x".join(map(str, s)) for s in [*inputs[:2], output]),
        weights_bytes=weights,
        time_s=1e-6 * per_call * sum(e["dur"] for e in runs) / len(runs),
    )


def _dtype(op: str, node: Node | None) -> str:
    return node.arithmetic if node else "int8" if op in _INT8 else ""


def _kind(op: str, node: Node | None) -> str:
    kind = kinds.onnx_kind(op)
    weight = next((w for w in node.weights.values() if len(w) >= 3), None) if node else None
    if kind == "conv" and node and weight:
        kind = kinds.conv_kind(node.group, weight[1])
    return str(kind)


def _calls(events: list[dict[str, Any]]) -> int:
    """Calls of the model in a profile: how often its first node ran."""
    first = _event_name(events[0]) if events else ""
    return max(1, sum(_event_name(e) == first for e in events))


def _last_call(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return events[-(len(events) // _calls(events)) :] if events else []


def _event_name(event: dict[str, Any]) -> str:
    return str(event["name"]).removesuffix("_kernel_time")


def _event_dtype(event: dict[str, Any]) -> str:
    for entry in event["args"].get("input_type_shape") or []:
        for dtype in entry:
            return _DTYPES.get(str(dtype), str(dtype))
    return "float32"


def _shapes(entries: Any) -> list[tuple[int, ...]]:
    return [tuple(shape) for entry in entries or [] for shape in entry.values()] or [()]


def _has_weight(node: Node) -> bool:
    return any(len(shape) >= 2 for shape in node.weights.values())


def _tensor_bytes(tensor: Any) -> int:
    import onnx

    packed = {onnx.TensorProto.INT4: 0.5, onnx.TensorProto.UINT4: 0.5}
    width: float = packed.get(tensor.data_type) or onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    elements: int = math.prod(tensor.dims)
    return math.ceil(elements * width)


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in Counter(names).most_common())
