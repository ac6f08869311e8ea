"""The batch of an ONNX model: fix a free axis to a number, in a new file.

Why: a fixed batch lets runtimes plan memory and pick kernels ahead, and some (static int8
calibration, ahead-of-time compilers) need it. Only the axis called by the batch's name is touched;
other free axes stay. A model already fixed at another batch is refused, since reshapes inside it
may hold that number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironlaw.records import TensorSpec


def fix(source: Path, target: Path, inputs: tuple[TensorSpec, ...], batch: int) -> Path:
    """Write ``source`` with its batch fixed at ``batch`` to ``target`` (external data stays in one file beside).

    Raises:
        ValueError: the model is fixed at another batch.
    """
    import onnx

    model = onnx.load(str(source))
    names = _free_names(model.graph, inputs, batch)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in names:
                axis.dim_value = batch
    _set_unnamed(model.graph, inputs, batch)
    target.parent.mkdir(parents=True, exist_ok=True)
    if model.ByteSize() > 1_500_000_000:
        onnx.save(model, str(target), save_as_external_data=True, location=f"{target.name}.data")
    else:
        onnx.save(model, str(target))
    return target


def batch_of(source: Path, inputs: tuple[TensorSpec, ...]) -> int | None:
    """The batch that an ONNX model is fixed at; None when it is free."""
    import onnx

    graph = onnx.load(str(source), load_external_data=False).graph
    axes = _batch_axes(graph, inputs)
    return axes[0].dim_value if axes and axes[0].HasField("dim_value") else None


def _batch_axes(graph: Any, inputs: tuple[TensorSpec, ...]) -> list[Any]:
    batched = {spec.name for spec in inputs if spec.batched}
    return [v.type.tensor_type.shape.dim[0] for v in graph.input if v.name in batched]


def _free_names(graph: Any, inputs: tuple[TensorSpec, ...], batch: int) -> set[str]:
    names = set()
    for axis in _batch_axes(graph, inputs):
        if axis.HasField("dim_value") and axis.dim_value != batch:
            raise ValueError(f"the model is fixed at batch {axis.dim_value}, so batch {batch} cannot be set")
        names.add(axis.dim_param)
    return names - {""}


def _set_unnamed(graph: Any, inputs: tuple[TensorSpec, ...], batch: int) -> None:
    for axis in _batch_axes(graph, inputs):
        axis.dim_value = batch
