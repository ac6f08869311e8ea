"""Finds int8 products in an ONNX file that saturate on CPUs without a dot-product instruction (VNNI).

There, ``vpmaddubsw`` multiplies unsigned by signed bytes and adds two products in 16 bits: 2 x 255 x 127 does not
fit, 2 x 255 x 64 does. Signed activations take another path.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SEVEN_BITS = 64
_ZERO_AND_WEIGHT = {
    "QLinearConv": (2, 3),
    "QLinearMatMul": (2, 3),
    "QGemm": (2, 3),
    "ConvInteger": (2, 1),
    "MatMulInteger": (2, 1),
}
"""Positions of the activation's zero point and of the weight."""


def saturating_pairs(path: Path) -> int:
    """int8 operators that multiply unsigned activations by signed weights beyond 7 bits."""
    import onnx

    graph = onnx.load(str(path)).graph
    constants = {one.name: one for one in graph.initializer}
    made_by = {name: node for node in graph.node for name in node.output}
    pairs = (_int8_pair(node, made_by) for node in graph.node)
    return sum(_saturates(pair, constants, made_by) for pair in pairs if pair is not None)


def _int8_pair(node: Any, made_by: Mapping[str, Any]) -> tuple[str, str] | None:
    """Names of the activation's zero point and of the weight, in a fused operator or behind DequantizeLinear."""
    if node.op_type in _ZERO_AND_WEIGHT:
        zero, weight = _ZERO_AND_WEIGHT[node.op_type]
        return (node.input[zero], node.input[weight]) if len(node.input) > max(zero, weight) else None
    makers = [made_by.get(name) for name in node.input[:2]]
    data, weight_maker = makers if len(makers) == 2 else (None, None)
    if node.op_type not in ("Conv", "MatMul", "Gemm") or data is None or weight_maker is None:
        return None
    behind = data.op_type == weight_maker.op_type == "DequantizeLinear" and len(data.input) > 2
    return (data.input[2], weight_maker.input[0]) if behind else None


def _saturates(pair: tuple[str, str], constants: Mapping[str, Any], made_by: Mapping[str, Any]) -> bool:
    import numpy as np
    from onnx import TensorProto, numpy_helper

    zero, weight = pair
    dynamic = zero in made_by and made_by[zero].op_type == "DynamicQuantizeLinear"
    unsigned = dynamic or (zero in constants and constants[zero].data_type == TensorProto.UINT8)
    if not unsigned or weight not in constants or constants[weight].data_type != TensorProto.INT8:
        return False
    values = numpy_helper.to_array(constants[weight]).astype(np.int16)
    return bool(np.abs(values).max(initial=0) > _SEVEN_BITS)
