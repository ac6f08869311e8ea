"""Opening a workload's model, whatever it is: a live module, an ONNX file or a ``torch.export`` file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ironlaw.records import Form, UserError
from ironlaw.workloads.eager import open_torch
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.local import Local
from ironlaw.workloads.onnxfile import open_onnx


def open_model(inference: Inference) -> Local:
    """The model of ``inference``, run once on its example.

    Raises UserError: no such file; corrupt file; not a model; weights or example that are not finite; a model
    whose forward raises; outputs that are no tensors.
    """
    model = inference.model
    if isinstance(model, str | Path):
        path = Path(model)
        if not path.is_file():
            raise UserError(str(path), "no such file", "Give the path of an .onnx or .pt2 file.")
        if path.suffix == ".onnx":
            return open_onnx(path, inference.example)
        if path.suffix != ".pt2":
            raise UserError(str(path), f"files of type {path.suffix!r} are not models here", "Give .onnx or .pt2.")
        return _open_exported(path, inference.example)
    import torch

    if not isinstance(model, torch.nn.Module):
        raise UserError(
            f"model ({type(model).__name__})",
            "is neither a torch.nn.Module nor a path",
            "Give il.Inference(model=...).",
        )
    return open_torch(model, inference.example)


def _open_exported(path: Path, example: Any) -> Local:
    """The program at ``path``; the file itself is what workers get, so nothing can be wrapped around it."""
    import torch

    try:
        program = torch.export.load(path).module(check_guards=False)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            str(path),
            f"is not a torch.export file: {type(error).__name__}: {first}",
            "Write it with torch.export.save.",
        ) from error
    local = open_torch(program, example)
    if local.model is not program:
        raise UserError(
            str(path),
            "takes keywords or returns something else than one tensor or a tuple of tensors",
            "Export a module whose forward takes tensors by position and returns a tensor or a tuple.",
        )
    return replace(local, form=Form.EXPORTED, model=path.read_bytes())
