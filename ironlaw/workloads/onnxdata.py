"""A workload from two files: an ONNX graph and an ``.npz`` with its inputs by name and labels as ``y``.

With ``y`` the metric follows from its kind: whole numbers, one an example, are classes (top-1); numbers shaped
like the first output are targets (RMSE). Without ``y`` quality is fidelity to the model as it is.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.metrics import cosine_fidelity, regression_error, top1
from ironlaw.records import UserError
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.onnxfile import expect, fit, read, session_of

Array = NDArray[Any]
Shapes = dict[str, tuple[int | None, ...]]

LABELS = "y"
CALIBRATION_EXAMPLES = 128
BATCH = 32


def workload(path: Path, data: Path | None) -> Inference:
    """The graph at ``path`` on the arrays of ``data``: the first rows are the example and calibrate.

    Raises UserError: a file that is missing or corrupt, an input that is absent, a name that the graph does not
    have, shapes or kinds that do not fit, inputs and labels of different length, no examples.
    """
    if data is None:
        raise UserError(str(path), "comes without data", "Add --data FILE.npz with its inputs by name, labels as y.")
    session = session_of(read(path), str(path))
    wanted = expect(session)
    arrays = _read(data)
    labels = arrays.pop(LABELS, None) if LABELS not in {name for name, _, _ in wanted} else None
    _check_names(data, set(arrays), [name for name, _, _ in wanted])
    fixed = wanted[0][1][0] if wanted[0][1] else None
    inputs = {name: fit(name, arrays[name], shape, dtype, free_batch=True) for name, shape, dtype in wanted}
    count = _count(data, inputs, fixed)
    batch = fixed or 1
    kept = min(count, CALIBRATION_EXAMPLES)
    size = batch if fixed else BATCH
    starts = range(0, kept - (kept % size if fixed else 0), size)
    return Inference(
        str(path),
        {name: array[:batch] for name, array in inputs.items()},
        evaluate=_metric(session, inputs, labels, count, size),
        calibrate=[{n: a[i : min(i + size, kept)] for n, a in inputs.items()} for i in starts],
        name=path.stem,
    )


def _read(data: Path) -> dict[str, Array]:
    if not data.is_file():
        raise UserError(f"--data {data}", "no such file", "Write it with numpy.savez(file, name=array, y=labels).")
    try:
        with np.load(data, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise UserError(
            f"--data {data}", f"is not a readable .npz of numbers: {error}", "Write it with numpy.savez."
        ) from error


def _check_names(data: Path, given: set[str], wanted: list[str]) -> None:
    missing = [name for name in wanted if name not in given]
    unknown = sorted(given - set(wanted))
    if missing or unknown:
        what = ([f"has no {', '.join(missing)}"] if missing else []) + (
            [f"has {', '.join(unknown)}, which the graph does not take"] if unknown else []
        )
        raise UserError(
            f"--data {data}", " and ".join(what), f"The graph takes {', '.join(wanted)}; labels are called {LABELS}."
        )


def _count(data: Path, inputs: dict[str, Array], fixed: int | None) -> int:
    lengths = {name: len(array) if array.ndim else 0 for name, array in inputs.items()}
    if len(set(lengths.values())) != 1:
        words = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        raise UserError(f"--data {data}", f"holds different numbers of examples ({words})", "Give each the same.")
    count = next(iter(lengths.values()))
    if count < (fixed or 1):
        raise UserError(
            f"--data {data}",
            f"holds {count} examples, the graph takes {fixed or 1} at once",
            "Give at least that many.",
        )
    for name, array in inputs.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise UserError(f"--data {data}", f"input {name!r} holds NaN or Inf", "Give real data.")
    return count


def _metric(session: Any, inputs: dict[str, Array], labels: Array | None, count: int, size: int) -> Callable[..., Any]:
    if labels is None:
        return cosine_fidelity(inputs, size)
    if len(np.atleast_1d(labels)) != count or not labels.ndim:
        raise UserError(
            f"labels {LABELS}", f"have shape {labels.shape}, there are {count} examples", "Give one label an example."
        )
    rank = len(session.get_outputs()[0].shape)
    if labels.dtype.kind in "iub" and (labels.ndim == 1 or labels.ndim == rank - 1):
        return top1(inputs, labels, size)
    if labels.dtype.kind == "f":
        return regression_error(inputs, labels, size)
    raise UserError(
        f"labels {LABELS}",
        f"are {labels.dtype.name} of shape {labels.shape}: neither classes nor targets",
        "Give whole numbers, one an example, or floats shaped like the first output.",
    )
