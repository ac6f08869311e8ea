"""A workload as workers see it: a folder named by its content, written once and never changed.

The user's objects stay in the parent; what crosses is this folder. It is written beside, fsynced and renamed,
so that a killed run leaves a whole snapshot or none, and the same content finds the same folder again. The
pickle in it is our own: it is only ever read from our store, never from a file that somebody gave.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.records import Form, Kind, ModelFile, Snapshot, UserError, from_json, to_data, to_json
from ironlaw.workloads.check import (
    Axes,
    axes_of,
    calibration_of,
    check_evaluate,
    evaluator_over,
    predict_of,
)
from ironlaw.workloads.digest import digest_module, digest_workload
from ironlaw.workloads.eager import evaluating
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.local import Local, check_numbers_out
from ironlaw.workloads.opening import open_model
from ironlaw.workloads.rebuild import Rebuild
from ironlaw.workloads.source import by_value

Array = NDArray[Any]

_FILES = {
    Form.EAGER: "forms/eager/model.pkl",
    Form.EXPORTED: "forms/exported/model.pt2",
    Form.ONNX: "forms/onnx/model.onnx",
}
_RECORD = "snapshot.json"


def snapshot(inference: Inference, folder: Path, name: str) -> Snapshot:
    """Check ``inference`` in full and keep it under ``folder/<digest>``; the same content is written once.

    Raises UserError for every bad input of DESIGN section 7 (see :mod:`ironlaw.workloads.check` and
    :mod:`ironlaw.workloads.opening`), for a model that cannot be pickled, and for a folder that cannot be written.
    """
    local = open_model(inference)
    check_numbers_out(local.output_names, local.outputs)
    axes = axes_of(local)
    batches = calibration_of(inference, local, axes)
    check_evaluate(inference, evaluator_over(inference, batches or [list(local.inputs)]), predict_of(local, axes))
    model_digest, payload = _payload(local)
    digest = digest_workload(model_digest, _facts(local, axes, len(batches)), [local.inputs, *batches])
    final = folder.resolve() / digest
    if (final / _RECORD).is_file():
        return read_snapshot(final)
    record = Snapshot(
        digest=digest,
        kind=Kind.INFERENCE,
        name=name,
        folder=str(final),
        model=ModelFile(form=local.form, path=str(final / _FILES[local.form]), digest=model_digest),
        inputs=axes.inputs,
        outputs=axes.outputs,
        batch=axes.batch,
        dynamic=axes.dynamic,
        parameters=local.parameters,
        weights_bytes=local.weights_bytes,
        calibration_batches=len(batches),
    )
    names = local.rebuild.names
    files = {
        _FILES[local.form]: payload(),
        "example.npz": _npz(dict(zip(names, local.inputs, strict=True))),
        "calibration.npz": _npz({f"{i}.{n}": a for i, b in enumerate(batches) for n, a in zip(names, b, strict=True)}),
        _RECORD: to_json(record, indent=1).encode(),
    }
    _write(final, files)
    return record


def read_snapshot(folder: Path) -> Snapshot:
    """The snapshot that lies in ``folder``, with paths that hold where it lies now."""
    data = json.loads((folder / _RECORD).read_text())
    data["folder"] = str(folder)
    data["model"]["path"] = str(folder / _FILES[data["model"]["form"]])
    return from_json(Snapshot, json.dumps(data))


def rebuild(inference: Inference) -> Rebuild:
    """The translation between what ``evaluate`` passes and expects and the arrays of workers."""
    return open_model(inference).rebuild


def evaluator(inference: Inference, taken: Snapshot) -> Callable[..., Any]:
    """What judges candidates: the user's ``evaluate``, or cosine fidelity on the snapshot's own batches."""
    return evaluator_over(inference, [] if inference.evaluate else (calibration(taken) or [example(taken)]))


def example(taken: Snapshot) -> list[Array]:
    """The example's arrays in the order of ``inputs``."""
    with np.load(Path(taken.folder) / "example.npz", allow_pickle=False) as arrays:
        return [arrays[spec.name] for spec in taken.inputs]


def calibration(taken: Snapshot) -> list[list[Array]]:
    """The calibration batches, each in the order of ``inputs``."""
    with np.load(Path(taken.folder) / "calibration.npz", allow_pickle=False) as arrays:
        return [[arrays[f"{i}.{spec.name}"] for spec in taken.inputs] for i in range(taken.calibration_batches)]


# ---------------------------------------------------------------- content


def _facts(local: Local, axes: Axes, batches: int) -> dict[str, Any]:
    return {
        "form": local.form,
        "inputs": to_data(axes.inputs),
        "outputs": to_data(axes.outputs),
        "dynamic": axes.dynamic,
        "structure": str(local.rebuild.structure),
        "constants": repr(local.rebuild.constants),
        "batches": batches,
    }


def _payload(local: Local) -> tuple[str, Callable[[], bytes]]:
    """The model's digest, and what makes its bytes (only needed when the snapshot is new)."""
    if local.form != Form.EAGER:
        data: bytes = local.model if local.form == Form.EXPORTED else local.model.SerializeToString(deterministic=True)
        return hashlib.sha256(data).hexdigest(), lambda: data
    return digest_module(local.model), lambda: _pickle(local)


def _pickle(local: Local) -> bytes:
    """The module in evaluation mode, read back once and compared on the example."""
    import cloudpickle

    kind = type(local.model).__name__
    remedy = "Remove what cannot be pickled from the module, or export it to ONNX and give the .onnx file."
    with evaluating(local.model), by_value(local.model):
        try:
            data: bytes = cloudpickle.dumps(local.model)
            copy = cloudpickle.loads(data)
        except Exception as error:
            raise UserError(f"model {kind}", f"cannot be pickled: {type(error).__name__}: {error}", remedy) from error
    _check_copy(copy, local, f"model {kind}", remedy)
    return data


def _check_copy(copy: Any, local: Local, given: str, remedy: str) -> None:
    import torch

    with torch.no_grad():
        try:
            found = copy(*[torch.from_numpy(a.copy()) for a in local.inputs])
        except Exception as error:
            raise UserError(
                given, f"does not run once it is pickled: {type(error).__name__}: {error}", remedy
            ) from error
    arrays = [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]
    if not all(
        np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) for a, b in zip(arrays, local.outputs, strict=True)
    ):
        raise UserError(
            given,
            "gives other outputs after it is pickled, or from one call to the next",
            "Make forward deterministic.",
        )


def _npz(arrays: dict[str, Array]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


# ---------------------------------------------------------------- disk


def _write(final: Path, files: dict[str, bytes]) -> None:
    """All of ``files`` under ``final``, or nothing: beside, fsync, rename. A twin that was faster wins."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".new-", dir=final.parent))
    except OSError as error:
        raise _disk(final.parent, error) from error
    try:
        for name, data in files.items():
            _write_file(beside / name, data)
        for path in [*(p for p in beside.rglob("*") if p.is_dir()), beside]:
            _sync(path)
        if final.exists() and not (final / _RECORD).is_file():
            shutil.rmtree(final)
        os.replace(beside, final)
        _sync(final.parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and (final / _RECORD).is_file():
            return
        raise _disk(final.parent, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _disk(folder: Path, error: OSError) -> UserError:
    return UserError(
        str(folder), f"cannot be written: {error.strerror or error}", "Free space, or point IRONLAW_HOME elsewhere."
    )
