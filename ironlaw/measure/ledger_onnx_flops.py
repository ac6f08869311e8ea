"""FLOPs of ONNX operators from shapes alone, in the convention of ``ledger_flops``; None where unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw.measure.ledger_flops import (
    BATCH_NORM_PER_ELEMENT,
    NORM_PER_ELEMENT,
    SOFTMAX_PER_ELEMENT,
    attention_flops,
)

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One node with everything that its cost depends on. An absent optional input is None."""

    op: str
    domain: str
    kind: str
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]
    attributes: Mapping[str, Any]

    def shape(self, position: int) -> Shape:
        """Raises KeyError where the operand is absent or its shape unknown, which makes the operator uncounted."""
        found = self.inputs[position] if position < len(self.inputs) else None
        if found is None:
            raise KeyError(position)
        return found

    @property
    def out(self) -> float:
        if not self.outputs or self.outputs[0] is None:
            raise KeyError("output")
        return float(math.prod(self.outputs[0]))


def flops(call: Call) -> float | None:
    """FLOPs of the call, or None when there is no formula or a shape is missing."""
    formula = _FORMULAS.get(call.op) or _BY_KIND.get(call.kind)
    if formula is None:
        return None
    try:
        return formula(call)
    except KeyError:
        return None


def weight_position(op: str) -> int:
    """Which operand is the weight of a convolution or product."""
    return 3 if op in ("QLinearConv", "QLinearMatMul", "QGemm") else 1


def _conv(call: Call) -> float:
    weight = call.shape(weight_position(call.op))
    return 2.0 * call.out * math.prod(weight[1:])


def _conv_transpose(call: Call) -> float:
    return 2.0 * math.prod(call.shape(0)) * math.prod(call.shape(weight_position(call.op))[1:])


def _product(call: Call) -> float:
    left = call.shape(0)
    inner = left[-2] if call.attributes.get("transA") and len(left) > 1 else left[-1]
    return 2.0 * call.out * inner


def _packed_product(call: Call) -> float:
    """A product with packed weights: rows by its K and N, since shape inference does not know the operator."""
    rows = math.prod(call.shape(0)[:-1])
    return 2.0 * rows * float(call.attributes["K"]) * float(call.attributes["N"])


def _recurrent(call: Call) -> float:
    steps = math.prod(call.shape(0)[:2])
    return 2.0 * steps * (math.prod(call.shape(1)) + math.prod(call.shape(2)))


def _attention(call: Call) -> float:
    if call.domain in ("", "ai.onnx"):
        return attention_flops(*_by_heads(call))
    rows, weight = call.shape(0), call.shape(1)
    width = weight[1] // 3
    return 2.0 * math.prod(rows[:-1]) * math.prod(weight) + attention_flops(*[(*rows[:-1], width)] * 3)


def _by_heads(call: Call) -> tuple[Shape, Shape, Shape]:
    """Heads split or not, the products are the same: rows of all heads times the width of one."""
    query, key, value = (call.shape(position) for position in range(3))
    if len(query) == 4:
        return query, key, value
    heads = int(call.attributes.get("q_num_heads") or call.attributes.get("num_heads") or 1)
    kv_heads = int(call.attributes.get("kv_num_heads") or heads)
    width, out_width = query[-1] // heads, value[-1] // kv_heads
    return (query[0], heads, query[1], width), (key[0], kv_heads, key[1], width), (*value[:1], 1, value[1], out_width)


def _multi_head(call: Call) -> float:
    return attention_flops(*_by_heads(call))


def _einsum(call: Call) -> float:
    """The product of all index lengths: the direct evaluation of a two-operand contraction."""
    left = call.attributes["equation"].decode().replace(" ", "").split("->")[0].split(",")
    if "." in "".join(left):
        raise KeyError("ellipsis")
    sizes = {
        name: size
        for term, i in zip(left, range(len(left)), strict=True)
        for name, size in zip(term, call.shape(i), strict=True)
    }
    return (2.0 if len(left) > 1 else 1.0) * float(math.prod(sizes.values()))


def _per_output(call: Call) -> float:
    return call.out


def _per_input(call: Call) -> float:
    return float(math.prod(call.shape(0)))


def _windows(call: Call) -> float:
    return call.out * float(math.prod(call.attributes["kernel_shape"]))


def _sort(call: Call) -> float:
    axis = int(call.attributes.get("axis", -1))
    shape = call.shape(0)
    return math.prod(shape) * max(1.0, math.log2(max(2, shape[axis])))


def _nothing(call: Call) -> float:
    return 0.0


def _scaled(per_element: float) -> Callable[[Call], float]:
    return lambda call: per_element * math.prod(call.shape(0))


_BY_KIND: dict[str, Callable[[Call], float]] = {
    "conv": _conv,
    "depthwise": _conv,
    "matmul": _product,
    "recurrent": _recurrent,
    "elementwise": _per_output,
    "reduce": _per_input,
    "softmax": _scaled(SOFTMAX_PER_ELEMENT),
    "norm": _scaled(NORM_PER_ELEMENT),
    "embedding": _nothing,
    "copy": _nothing,
    "view": _nothing,
}

_FORMULAS: dict[str, Callable[[Call], float]] = {
    "ConvTranspose": _conv_transpose,
    "MatMulNBits": _packed_product,
    "Einsum": _einsum,
    "Attention": _attention,
    "QAttention": _attention,
    "MultiHeadAttention": _multi_head,
    "BatchNormalization": _scaled(BATCH_NORM_PER_ELEMENT),
    "MaxPool": _windows,
    "AveragePool": _windows,
    "LpPool": _windows,
    "NhwcMaxPool": _windows,
    "QLinearAveragePool": _windows,
    **dict.fromkeys(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "QLinearGlobalAveragePool"], _per_input),
    "TopK": _sort,
}
