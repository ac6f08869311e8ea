"""Small ONNX graphs on which graph runtimes show what their kernels reach, by kind and dtype.

Every case is one operator (or one attention, one LSTM) with inputs of its own, so that nothing fuses
across cases and a profile of one graph times them all. Shapes are spread over what networks use and
are nobody's workload: fitting them on the user's model would hide what a runtime loses there. Nodes of a
case carry its name as a prefix; conversions around int8 operators do not, since networks share their cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ironlaw.measure.kinds import ARITHMETIC

if TYPE_CHECKING:
    import numpy as np

KINDS_OF = {"int8": ("conv", "depthwise", "matmul"), "bfloat16": ("conv", "depthwise", "matmul", "recurrent")}
"""Kinds whose narrow kernels are calibrated; float32 has all."""
CHAIN_KINDS = ("conv", "depthwise", "matmul", "elementwise", "pool", "softmax", "norm")
CHAIN_LENGTH = 12

# (batch, channels in, side, channels out, kernel, stride); sides after padding stay round.
CONVOLUTIONS = (
    (1, 3, 96, 32, 3, 2), (1, 16, 56, 64, 1, 1), (1, 96, 28, 24, 1, 1), (1, 64, 28, 64, 3, 1), (1, 128, 14, 128, 3, 1),
    (1, 256, 14, 64, 1, 1), (1, 192, 7, 320, 1, 1), (4, 32, 28, 32, 3, 1), (1, 16, 12, 16, 3, 1), (2, 16, 16, 32, 3, 1),
    (8, 1, 28, 16, 5, 1), (8, 48, 14, 96, 1, 1),
)  # fmt: skip
# (batch, channels, side, kernel, stride)
DEPTHWISE = (
    (1, 32, 56, 3, 1), (1, 96, 56, 3, 2), (1, 144, 28, 5, 1), (1, 240, 14, 3, 1), (1, 480, 14, 5, 1),
    (1, 672, 7, 5, 1), (4, 64, 28, 3, 1), (1, 16, 16, 3, 1), (8, 96, 14, 3, 1),
)  # fmt: skip
# (rows, inner, columns)
PRODUCTS = (
    (1, 256, 256), (1, 512, 1000), (4, 784, 300), (8, 512, 512), (16, 128, 64), (32, 256, 1024), (64, 384, 384),
    (128, 384, 1536), (128, 1536, 384), (256, 512, 512), (512, 64, 64),
)  # fmt: skip
# (heads, tokens, head width)
ATTENTIONS = (
    (4, 16, 32), (12, 32, 32), (12, 64, 64), (8, 128, 64), (12, 128, 32), (6, 197, 64), (4, 256, 64), (2, 48, 64),
)  # fmt: skip
# (steps, batch, width in, hidden)
RECURRENT = (
    (8, 1, 32, 32), (16, 1, 64, 128), (16, 4, 40, 64), (32, 1, 128, 128), (8, 8, 128, 256), (24, 2, 12, 48),
    (12, 1, 256, 256), (10, 16, 32, 64),
)  # fmt: skip
# rows and width of two-dimensional operands
PLANES = ((16, 96), (64, 128), (128, 384), (128, 1536), (196, 768), (512, 256), (1024, 512), (256, 3072), (2048, 768))
# (batch, channels, side)
MAPS = ((1, 16, 16), (1, 32, 56), (1, 64, 28), (1, 320, 7), (2, 96, 28), (4, 64, 28), (1, 32, 112), (8, 64, 14))


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One operator: ``work`` is its FLOPs for arithmetic kinds (an FMA is two), else bytes of all operands."""

    name: str
    kind: str
    work: float
    nodes: tuple[Any, ...]
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[str, ...]
    weights: dict[str, np.ndarray] = field(default_factory=dict)


def cases(dtype: str) -> tuple[Case, ...]:
    """Every case with kernels of that dtype: all kinds for float32, else those of ``KINDS_OF``."""
    makers = {
        "conv": (_conv, CONVOLUTIONS),
        "depthwise": (_depthwise, DEPTHWISE),
        "matmul": (_product, PRODUCTS),
        "attention": (_attention, ATTENTIONS),
        "recurrent": (_recurrent, RECURRENT),
        "elementwise": (_elementwise, PLANES),
        "norm": (_norm, PLANES),
        "softmax": (_softmax, PLANES),
        "reduce": (_reduce, PLANES),
        "embedding": (_embedding, PLANES),
        "copy": (_copy, MAPS),
        "pool": (_pool, MAPS),
    }
    wanted = KINDS_OF.get(dtype, tuple(makers))
    out = []
    for kind in wanted:
        make, shapes = makers[kind]
        for index, shape in enumerate(shapes):
            case = make(f"{kind}{index:02d}__", index, shape)
            out.append(quantised(case) if dtype == "int8" else case)
    return tuple(out)


def chain(kind: str, dtype: str) -> tuple[bytes, dict[str, np.ndarray]]:
    """A graph of ``CHAIN_LENGTH`` tiny operators, each fed by the one before, and its input."""
    from onnx import helper

    links, value = [], "x0"
    for index in range(CHAIN_LENGTH):
        case = _tiny(kind, index)
        source = case.inputs[0][0]
        case = quantised(case) if dtype == "int8" else case
        join = helper.make_node("Identity", [value], [source], name=f"join{index}")
        links.append((join, case))
        value = case.outputs[0]
    shape = links[0][1].inputs[0][1]
    nodes = [node for join, case in links for node in (join, *case.nodes)]
    weights = {name: array for _, case in links for name, array in case.weights.items()}
    return _model(nodes, [("x0", shape)], [value], weights), _feeds([("x0", shape)])


def graph(all_cases: Sequence[Case]) -> tuple[bytes, dict[str, np.ndarray]]:
    """One model of independent cases, and its inputs."""
    nodes = [node for case in all_cases for node in case.nodes]
    inputs = [i for case in all_cases for i in case.inputs]
    outputs = [name for case in all_cases for name in case.outputs]
    weights = {name: array for case in all_cases for name, array in case.weights.items()}
    return _model(nodes, inputs, outputs, weights), _feeds(inputs)


def quantised(case: Case) -> Case:
    """The case in QDQ form: u8 activations, symmetric s8 weights per tensor, u8 output."""
    import numpy as np
    from onnx import helper

    (op,) = case.nodes
    source, shape = case.inputs[0]
    weight = op.input[1]
    mark = f"q_{case.name}"
    stored = np.clip(np.round(case.weights[weight] / 0.02), -127, 127).astype(np.int8)
    weights: dict[str, Any] = {
        f"{mark}w": stored,
        f"{mark}ws": np.float32(0.02),
        f"{mark}wz": np.int8(0),
        f"{mark}s": np.float32(0.04),
        f"{mark}z": np.uint8(128),
        f"{mark}os": np.float32(0.2),
    }

    def pair(value: str, out: str, scale: str) -> list[Any]:
        middle = f"{out}_q"
        return [
            helper.make_node("QuantizeLinear", [value, scale, f"{mark}z"], [middle], name=f"{out}_Q"),
            helper.make_node("DequantizeLinear", [middle, scale, f"{mark}z"], [out], name=f"{out}_DQ"),
        ]

    core = helper.make_node(op.op_type, [f"{mark}x", f"{mark}wf"], [f"{case.name}y"], name=op.name)
    core.attribute.extend(op.attribute)
    nodes = (
        *pair(source, f"{mark}x", f"{mark}s"),
        helper.make_node("DequantizeLinear", [f"{mark}w", f"{mark}ws", f"{mark}wz"], [f"{mark}wf"], name=f"{mark}w_DQ"),
        core,
        *pair(f"{case.name}y", f"{mark}out", f"{mark}os"),
    )
    return Case(
        name=case.name,
        kind=case.kind,
        work=case.work,
        nodes=nodes,
        inputs=((source, shape),),
        outputs=(f"{mark}out",),
        weights=weights,
    )


# ---------------------------------------------------------------- one maker a kind


def _one(
    name: str,
    kind: str,
    op: str,
    shape: tuple[int, ...],
    work: float,
    weights: dict[str, np.ndarray] | None = None,
    **attributes: Any,
) -> Case:
    from onnx import helper

    own = {f"{name}{key}": array for key, array in (weights or {}).items()}
    node = helper.make_node(op, [f"{name}x", *own], [f"{name}out"], name=f"{name}{op}", **attributes)
    return Case(
        name=name,
        kind=kind,
        work=work,
        nodes=(node,),
        inputs=((f"{name}x", shape),),
        outputs=(f"{name}out",),
        weights=own,
    )


def _conv(name: str, index: int, shape: tuple[int, ...]) -> Case:
    batch, inside, side, outside, kernel, stride = shape
    out_side = -(-side // stride)
    work = 2.0 * batch * out_side**2 * outside * inside * kernel**2
    weight = _normal((outside, inside, kernel, kernel), index)
    attributes = _window(side, kernel, stride)
    return _one(name, "conv", "Conv", (batch, inside, side, side), work, {"w": weight}, **attributes)


def _depthwise(name: str, index: int, shape: tuple[int, ...]) -> Case:
    batch, channels, side, kernel, stride = shape
    out_side = -(-side // stride)
    work = 2.0 * batch * out_side**2 * channels * kernel**2
    weight = _normal((channels, 1, kernel, kernel), index)
    attributes = {**_window(side, kernel, stride), "group": channels}
    return _one(name, "depthwise", "Conv", (batch, channels, side, side), work, {"w": weight}, **attributes)


def _window(side: int, kernel: int, stride: int) -> dict[str, Any]:
    """Padding that keeps ``ceil(side / stride)``, as exporters write it."""
    total = max(0, (-(-side // stride) - 1) * stride + kernel - side)
    low, high = total // 2, total - total // 2
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [low, low, high, high]}


def _product(name: str, index: int, shape: tuple[int, ...]) -> Case:
    rows, inner, columns = shape
    weight = _normal((inner, columns), index)
    return _one(name, "matmul", "MatMul", (rows, inner), 2.0 * rows * inner * columns, {"w": weight})


def _attention(name: str, index: int, shape: tuple[int, ...]) -> Case:
    from onnx import helper

    heads, tokens, width = shape
    q, k, v = (f"{name}{part}" for part in "qkv")
    nodes = (
        helper.make_node("MatMul", [q, k], [f"{name}scores"], name=f"{name}qk"),
        helper.make_node("Softmax", [f"{name}scores"], [f"{name}p"], name=f"{name}softmax", axis=-1),
        helper.make_node("MatMul", [f"{name}p", v], [f"{name}out"], name=f"{name}pv"),
    )
    return Case(
        name=name,
        kind="attention",
        work=4.0 * heads * tokens**2 * width,
        nodes=nodes,
        inputs=((q, (1, heads, tokens, width)), (k, (1, heads, width, tokens)), (v, (1, heads, tokens, width))),
        outputs=(f"{name}out",),
    )


def _recurrent(name: str, index: int, shape: tuple[int, ...]) -> Case:
    steps, batch, width, hidden = shape
    work = 2.0 * steps * batch * 4 * hidden * (width + hidden)
    weights = {"w": _normal((1, 4 * hidden, width), index), "r": _normal((1, 4 * hidden, hidden), index + 100)}
    return _one(name, "recurrent", "LSTM", (steps, batch, width), work, weights, hidden_size=hidden)


def _elementwise(name: str, index: int, shape: tuple[int, ...]) -> Case:
    """Unary and binary in turn; the activations that exporters write most."""
    from onnx import helper

    op = ("Add", "Relu", "Mul", "Sigmoid", "Add", "Tanh", "Mul", "Relu", "Add")[index % 9]
    size = 4.0 * math.prod(shape)
    if op not in ("Add", "Mul"):
        return _one(name, "elementwise", op, shape, 2 * size)
    node = helper.make_node(op, [f"{name}x", f"{name}z"], [f"{name}out"], name=f"{name}{op}")
    inputs = ((f"{name}x", shape), (f"{name}z", shape))
    return Case(name=name, kind="elementwise", work=3 * size, nodes=(node,), inputs=inputs, outputs=(f"{name}out",))


def _norm(name: str, index: int, shape: tuple[int, ...]) -> Case:
    weights = {"w": _normal((shape[-1],), index), "b": _normal((shape[-1],), index + 1)}
    return _one(name, "norm", "LayerNormalization", shape, 8.0 * math.prod(shape), weights, axis=-1)


def _softmax(name: str, index: int, shape: tuple[int, ...]) -> Case:
    return _one(name, "softmax", "Softmax", shape, 8.0 * math.prod(shape), axis=-1)


def _reduce(name: str, index: int, shape: tuple[int, ...]) -> Case:
    import numpy as np

    work = 4.0 * math.prod(shape)
    return _one(name, "reduce", "ReduceMean", shape, work, {"axes": np.array([1], dtype=np.int64)}, keepdims=1)


def _embedding(name: str, index: int, shape: tuple[int, ...]) -> Case:
    import numpy as np

    rows, width = shape
    picks = np.random.default_rng(index).integers(0, rows, max(8, rows // 2)).astype(np.int64)
    return _one(name, "embedding", "Gather", shape, 8.0 * len(picks) * width, {"i": picks}, axis=0)


def _copy(name: str, index: int, shape: tuple[int, ...]) -> Case:
    batch, channels, side = shape
    whole = (batch, channels, side, side)
    return _one(name, "copy", "Transpose", whole, 8.0 * math.prod(whole), perm=[0, 2, 3, 1])


def _pool(name: str, index: int, shape: tuple[int, ...]) -> Case:
    batch, channels, side = shape
    whole = (batch, channels, side, side)
    size = 4.0 * math.prod(whole)
    if index % 3 == 2:
        return _one(name, "pool", "GlobalAveragePool", whole, size + 4.0 * batch * channels)
    op, stride = ("MaxPool", 2) if index % 3 == 0 else ("AveragePool", 2)
    after = size * (-(-side // stride)) ** 2 / side**2
    return _one(name, "pool", op, whole, size + after, **_window(side, 2, stride))


def _tiny(kind: str, index: int) -> Case:
    name = f"{kind}{index:02d}__"
    if kind == "conv":
        return _conv(name, index, (1, 16, 4, 16, 1, 1))
    if kind == "depthwise":
        return _depthwise(name, index, (1, 16, 4, 3, 1))
    if kind == "matmul":
        return _product(name, index, (4, 64, 64))
    if kind == "pool":
        return _one(name, "pool", "MaxPool", (1, 16, 4, 4), 1.0, **_window(4, 3, 1))
    if kind == "elementwise":
        return _one(name, kind, ("Sigmoid", "Tanh")[index % 2], (1, 16), 1.0)
    return {"softmax": _softmax, "norm": _norm}[kind](name, index, (1, 16))


def _normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    import numpy as np

    fan = math.prod(shape[1:]) or 1
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) / np.float32(math.sqrt(fan))


def _feeds(inputs: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, np.ndarray]:
    return {name: _normal(shape, index) for index, (name, shape) in enumerate(inputs)}


def _model(
    nodes: Sequence[Any],
    inputs: Sequence[tuple[str, tuple[int, ...]]],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray],
) -> bytes:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    made = helper.make_graph(
        list(nodes),
        "calibration",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    text: bytes = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    ).SerializeToString()
    return text


def is_arithmetic(kind: str) -> bool:
    """Whether the rate of that kind is FLOP/s (else B/s)."""
    return kind in ARITHMETIC
