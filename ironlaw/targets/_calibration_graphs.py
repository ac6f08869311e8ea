"""Small ONNX graphs on which graph runtimes show what their kernels reach, by kind and dtype.

Every case is one operator (or one attention, one LSTM) with inputs of its own, so that nothing fuses
across cases and a profile of one graph times them all. Nodes of a case carry its name as a prefix;
conversions around int8 operators do not, since networks share their cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ironlaw.measure.kinds import ARITHMETIC
from ironlaw.targets._calibration_cases import Case, floats, kinds, normal, tiny

if TYPE_CHECKING:
    import numpy as np

KINDS_OF = {"int8": ("conv", "depthwise", "matmul"), "bfloat16": ("conv", "depthwise", "matmul", "recurrent")}
"""Kinds whose narrow kernels are calibrated; float32 has all."""
CHAIN_KINDS = ("conv", "depthwise", "matmul", "elementwise", "pool", "softmax", "norm")
CHAIN_LENGTH = 12


def cases(dtype: str) -> tuple[Case, ...]:
    """Every case with kernels of that dtype: all kinds for float32, else those of ``KINDS_OF``."""
    plain = (case for kind in KINDS_OF.get(dtype, kinds()) for case in floats(kind))
    return tuple(quantised(case) if dtype == "int8" else case for case in plain)


def chain(kind: str, dtype: str) -> tuple[bytes, dict[str, np.ndarray]]:
    """A graph of ``CHAIN_LENGTH`` tiny operators, each fed by the one before, and its input."""
    from onnx import helper

    links, value = [], "x0"
    for index in range(CHAIN_LENGTH):
        case = tiny(kind, index)
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


def _feeds(inputs: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, np.ndarray]:
    return {name: normal(shape, index) for index, (name, shape) in enumerate(inputs)}


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
