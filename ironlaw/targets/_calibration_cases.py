"""The operators on which graph runtimes are calibrated: one maker a kind, and shapes that are nobody's workload.

Shapes are spread over what networks use: fitting them on the user's model would hide what a runtime loses there.
A case states its own work, so that a rate is work over time whatever the runtime made of the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# (batch, channels in, side, channels out, kernel, stride); sides after padding stay round.
CONVOLUTIONS = (
    (1, 3, 96, 32, 3, 2), (1, 16, 56, 64, 1, 1), (1, 96, 28, 24, 1, 1), (1, 64, 28, 64, 3, 1), (1, 128, 14, 128, 3, 1),
    (1, 256, 14, 64, 1, 1), (1, 192, 7, 320, 1, 1), (4, 32, 28, 32, 3, 1), (1, 16, 12, 16, 3, 1), (2, 16, 16, 32, 3, 1),
    (8, 1, 28, 16, 5, 1), (8, 48, 14, 96, 1, 1), (1, 12, 20, 24, 5, 2), (1, 32, 40, 16, 1, 1), (1, 8, 32, 16, 3, 1),
    (2, 64, 40, 64, 3, 1), (1, 48, 12, 48, 3, 1), (1, 16, 10, 96, 1, 1),
)  # fmt: skip
# (batch, channels, side, kernel, stride)
DEPTHWISE = (
    (1, 32, 56, 3, 1), (1, 96, 56, 3, 2), (1, 144, 28, 5, 1), (1, 240, 14, 3, 1), (1, 480, 14, 5, 1),
    (1, 672, 7, 5, 1), (4, 64, 28, 3, 1), (1, 16, 16, 3, 1), (8, 96, 14, 3, 1),
)  # fmt: skip
# (rows, inner, columns)
PRODUCTS = (
    (1, 256, 256), (1, 512, 1000), (4, 784, 300), (8, 512, 512), (16, 128, 64), (32, 256, 1024), (64, 384, 384),
    (128, 384, 1536), (128, 1536, 384), (256, 512, 512), (512, 64, 64), (1, 64, 48), (1, 128, 128), (1, 1024, 1024),
    (2, 512, 512), (3, 256, 768), (16, 768, 768), (48, 64, 192), (200, 32, 48), (1, 192, 640), (1, 1536, 1536),
    (2, 1024, 1536), (4, 1280, 1024), (10, 1024, 1024),
)  # fmt: skip
# (heads, tokens, head width)
ATTENTIONS = (
    (4, 16, 32), (12, 32, 32), (12, 64, 64), (8, 128, 64), (12, 128, 32), (6, 197, 64), (4, 256, 64), (2, 48, 64),
)  # fmt: skip
# (steps, batch, width in, hidden)
RECURRENT = (
    (8, 1, 32, 32), (16, 1, 64, 128), (16, 4, 40, 64), (32, 1, 128, 128), (8, 8, 128, 256), (24, 2, 12, 48),
    (12, 1, 256, 256), (10, 16, 32, 64), (40, 1, 32, 64), (20, 1, 80, 200), (48, 8, 64, 128),
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


Maker = Callable[[str, int, tuple[int, ...]], Case]


def floats(kind: str) -> Iterator[Case]:
    """The float32 cases of one kind."""
    make, shapes = _makers()[kind]
    for index, shape in enumerate(shapes):
        yield make(f"{kind}{index:02d}__", index, shape)


def kinds() -> tuple[str, ...]:
    """Every kind that has cases."""
    return tuple(_makers())


def _makers() -> dict[str, tuple[Maker, tuple[tuple[int, ...], ...]]]:
    return {
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
    weight = normal((outside, inside, kernel, kernel), index)
    attributes = _window(side, kernel, stride)
    return _one(name, "conv", "Conv", (batch, inside, side, side), work, {"w": weight}, **attributes)


def _depthwise(name: str, index: int, shape: tuple[int, ...]) -> Case:
    batch, channels, side, kernel, stride = shape
    out_side = -(-side // stride)
    work = 2.0 * batch * out_side**2 * channels * kernel**2
    weight = normal((channels, 1, kernel, kernel), index)
    attributes = {**_window(side, kernel, stride), "group": channels}
    return _one(name, "depthwise", "Conv", (batch, channels, side, side), work, {"w": weight}, **attributes)


def _window(side: int, kernel: int, stride: int) -> dict[str, Any]:
    """Padding that keeps ``ceil(side / stride)``, as exporters write it."""
    total = max(0, (-(-side // stride) - 1) * stride + kernel - side)
    low, high = total // 2, total - total // 2
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [low, low, high, high]}


def _product(name: str, index: int, shape: tuple[int, ...]) -> Case:
    rows, inner, columns = shape
    weight = normal((inner, columns), index)
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
    weights = {"w": normal((1, 4 * hidden, width), index), "r": normal((1, 4 * hidden, hidden), index + 100)}
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
    weights = {"w": normal((shape[-1],), index), "b": normal((shape[-1],), index + 1)}
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


def tiny(kind: str, index: int) -> Case:
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


def normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    import numpy as np

    fan = math.prod(shape[1:]) or 1
    values: np.ndarray = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return values / np.float32(math.sqrt(fan))
