"""An ONNX graph at fixed input shapes: shape and type of every value, what is constant, who uses what.

Why not the runtime's own view: it differs by runtime and version. Shapes come from ONNX's inference; where
that stops (contrib operators, shapes from values), the graph is run once on the example with the missing
values as outputs. Only arrays get shapes: sequences and optionals stay unknown, and so uncounted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.measure.ledger_onnx_flops import Shape
from ironlaw.records import UserError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Value:
    shape: Shape | None
    dtype: str
    item_bytes: float

    @property
    def bytes(self) -> float:
        return math.prod(self.shape) * self.item_bytes if self.shape is not None else 0.0


class Graph:
    """A graph with the shape of every value, its constants, producers and consumers."""

    def __init__(self, path: Path, feeds: Mapping[str, np.ndarray]) -> None:
        model = _read(path)
        _fix_inputs(model, feeds, path)
        model = _infer(model)
        graph = model.graph
        self.values = _known_values(graph)
        self.constants = {one.name for one in graph.initializer}
        self.outputs = {one.name for one in graph.output}
        missing = [name for node in graph.node for name in node.output if name and self._unknown(name)]
        if missing:
            self.values.update(_by_running(path, feeds, missing))
        self.nodes = self._live(graph)
        self.producer = {name: node for node in graph.node for name in node.output}
        self.consumers: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)

    def value(self, name: str) -> Value:
        return self.values.get(name, Value(None, "float32", 4.0))

    def _unknown(self, name: str) -> bool:
        return name not in self.values or self.values[name].shape is None

    def _live(self, graph: Any) -> list[Any]:
        """Nodes that run: those whose result follows from constants or shapes are folded at load."""
        live = []
        for node in graph.node:
            fixed = all(name in self.constants for name in node.input if name)
            fixed = fixed and not any(a.HasField("g") or a.graphs for a in node.attribute)
            random = node.op_type.startswith(("Random", "Multinomial", "Bernoulli"))
            if (fixed and not random) or node.op_type in ("Shape", "Size", "Constant"):
                self.constants.update(node.output)
            else:
                live.append(node)
        return live


def _read(path: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError) as error:
        raise UserError(str(path), f"is not a readable ONNX model ({error})", "Export it again.") from error
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _fix_inputs(model: Any, feeds: Mapping[str, np.ndarray], path: Path) -> None:
    """Write the shapes of the feeds into the graph's inputs."""
    stored = {one.name for one in model.graph.initializer}
    for declared in model.graph.input:
        if declared.name in stored:
            continue
        if declared.name not in feeds:
            raise UserError(str(path), f"input {declared.name!r} has no example", "Give an array for each graph input.")
        dims = declared.type.tensor_type.shape.dim
        for dim, size in zip(dims, feeds[declared.name].shape, strict=True):
            if dim.HasField("dim_value") and dim.dim_value != size:
                raise UserError(
                    str(path), f"input {declared.name!r} is fixed to {dim.dim_value}, not {size}", "Export it again."
                )
            dim.dim_value = size
    del model.graph.value_info[:]
    for declared in model.graph.output:
        for dim in declared.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.Clear()


def _infer(model: Any) -> Any:
    import onnx

    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _known_values(graph: Any) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for one in (*graph.input, *graph.value_info, *graph.output):
        if one.type.HasField("tensor_type"):
            tensor = one.type.tensor_type
            dims = tensor.shape.dim
            known = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
            found[one.name] = _of_type(tuple(dim.dim_value for dim in dims) if known else None, tensor.elem_type)
    for weight in graph.initializer:
        found[weight.name] = _of_type(tuple(weight.dims), weight.data_type)
    return found


def _of_type(shape: Shape | None, elem_type: int) -> Value:
    import onnx

    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(elem_type)
    except (KeyError, TypeError):
        return Value(shape, "float32", 4.0)
    packed = {onnx.TensorProto.INT4: 0.5, onnx.TensorProto.UINT4: 0.5}
    return Value(shape, dtype.name, packed.get(elem_type, float(dtype.itemsize)))


def _by_running(path: Path, feeds: Mapping[str, np.ndarray], names: list[str]) -> dict[str, Value]:
    """Shapes and types of values that inference could not give, seen by running the graph once, unoptimised.

    Nothing where ONNX Runtime cannot run the graph: these values stay unknown, and their operators uncounted.
    """
    import numpy as np
    import onnx
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    model = onnx.load(str(path))
    inline = onnx.inliner.inline_local_functions(model) if model.functions else model
    present = {one.name for one in inline.graph.output}
    inside = {name for node in inline.graph.node for name in node.output}
    wanted = [name for name in dict.fromkeys(names) if name in inside]
    inline.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in present)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(inline.SerializeToString(), options, providers=["CPUExecutionProvider"])
        needed = {one.name for one in session.get_inputs()}
        results = session.run(wanted, {name: array for name, array in feeds.items() if name in needed})
    except (state.Fail, state.InvalidGraph, state.NotImplemented, state.InvalidArgument, state.RuntimeException):
        return {}
    return {
        name: Value(tuple(array.shape), array.dtype.name, float(array.dtype.itemsize))
        for name, array in zip(wanted, results, strict=True)
        if isinstance(array, np.ndarray)
    }
