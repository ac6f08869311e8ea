"""Reading an ONNX file: checked, loaded whole, and run by ONNX Runtime in the parent.

A truncated protobuf can still parse, and a graph that the checker passes can still fail to load, so
the file counts as good only when a session ran the example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.records import Form, UserError
from ironlaw.workloads.local import Local, check_finite_example, check_finite_weights
from ironlaw.workloads.rebuild import Rebuild, to_array

Array = NDArray[Any]
_KINDS = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int16)": "int16", "tensor(int8)": "int8",
    "tensor(uint8)": "uint8", "tensor(uint16)": "uint16", "tensor(uint32)": "uint32", "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
}  # fmt: skip


def read(path: Path) -> Any:
    """The ModelProto with its external data loaded.

    Raises UserError when the file is missing, truncated, corrupt, or holds weights that are not finite.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not path.is_file():
        raise UserError(str(path), "no such file", "Give the path of an .onnx file.")
    try:
        model = onnx.load(path)
        if not model.graph.node and not model.graph.output:
            raise ValueError("it holds no graph")
        onnx.checker.check_model(str(path))
    except (DecodeError, onnx.checker.ValidationError, ValueError, OSError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(str(path), f"is corrupt or truncated: {first}", "Export or download it again.") from error
    for tensor in model.graph.initializer:
        _check_finite(tensor)
    return model


def session_of(model: Any, given: str) -> Any:
    """An ONNX Runtime session on the CPU. Raises UserError when the runtime refuses the graph."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            given, f"ONNX Runtime cannot load it: {first}", "Check it with onnx.checker, or export it again."
        ) from error


def open_onnx(path: Path, example: Any) -> Local:
    """The file at ``path`` run once on ``example`` (a tensor, a tuple, or a mapping by the graph's names)."""
    model = read(path)
    session = session_of(model, str(path))
    names = tuple(i.name for i in session.get_inputs())
    inputs = _arrays(path, session, example)
    check_finite_example(names, inputs)

    def call(arrays: Sequence[Array]) -> list[Array]:
        return [np.asarray(o) for o in session.run(None, dict(zip(names, arrays, strict=True)))]

    try:
        outputs = tuple(call(inputs))
    except Exception as error:
        shapes = ", ".join(f"{n} {tuple(a.shape)}" for n, a in zip(names, inputs, strict=True))
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(str(path), f"fails on the example ({shapes}): {first}", "Check the example.") from error
    sizes = [int(np.prod(t.dims)) if t.dims else 1 for t in model.graph.initializer]
    return Local(
        form=Form.ONNX,
        model=model,
        rebuild=Rebuild(names=names, dtypes=tuple(a.dtype.name for a in inputs)),
        output_names=tuple(o.name for o in session.get_outputs()),
        call=call,
        inputs=inputs,
        outputs=outputs,
        parameters=sum(sizes),
        weights_bytes=sum(_bytes(t) for t in model.graph.initializer),
    )


def expect(session: Any) -> tuple[tuple[str, tuple[int | None, ...], str], ...]:
    """Each input's name, shape (None where it may vary) and numpy dtype.

    Raises UserError for inputs that are not tensors of numbers.
    """
    found = []
    for value in session.get_inputs():
        if value.type not in _KINDS:
            raise UserError(f"input {value.name!r}", f"has type {value.type}", "Only tensors of numbers can be given.")
        shape = tuple(d if isinstance(d, int) and d > 0 else None for d in value.shape)
        found.append((value.name, shape, _KINDS[value.type]))
    return tuple(found)


def fit(name: str, array: Array, shape: tuple[int | None, ...], dtype: str, *, free_batch: bool = False) -> Array:
    """``array`` as input ``name`` wants it; axis 0 is not compared when ``free_batch``. Raises UserError."""
    start = 1 if free_batch else 0
    wrong = len(shape) != array.ndim or any(
        want is not None and want != got for want, got in zip(shape[start:], array.shape[start:], strict=True)
    )
    if wrong:
        words = "x".join("?" if d is None else str(d) for d in shape)
        raise UserError(f"input {name!r}", f"has shape {array.shape}, the graph wants {words}", "Reshape it.")
    if not np.can_cast(array.dtype, dtype, casting="same_kind"):
        raise UserError(f"input {name!r}", f"is {array.dtype.name}, the graph wants {dtype}", "Convert it.")
    return np.ascontiguousarray(array, dtype=dtype)


def _arrays(path: Path, session: Any, example: Any) -> tuple[Array, ...]:
    wanted = expect(session)
    names = [name for name, _, _ in wanted]
    if not isinstance(example, Mapping):
        values = tuple(example) if isinstance(example, tuple | list) else (example,)
        if len(values) != len(names):
            raise UserError(f"example of {path}", f"has {len(values)} inputs", f"The graph takes {', '.join(names)}.")
        example = dict(zip(names, values, strict=True))
    if set(example) != set(names):
        raise UserError(f"example of {path}", f"has {sorted(example)}", f"The graph takes {', '.join(names)}.")
    return tuple(fit(name, to_array(example[name], f"example {name!r}"), shape, dtype) for name, shape, dtype in wanted)


def _check_finite(tensor: Any) -> None:
    import onnx

    if tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16):
        return
    try:
        values = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise UserError(f"weights {tensor.name!r}", f"cannot be read: {error}", "Export the model again.") from error
    check_finite_weights(tensor.name, values, mask_allowed=True)


def _bytes(tensor: Any) -> int:
    import onnx

    return int(np.prod(tensor.dims)) * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
