"""From what a person types to a workload: ``file.py:name``, ``model.onnx`` with ``--data``, ``demo:NAME``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironlaw.records import UserError
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.source import blamed, load_module

_FORMS = "Give file.py:name, model.onnx with --data FILE.npz, or demo:NAME."


def load(spec: str, *, data: Path | None = None) -> Inference:
    """The workload that ``spec`` names; a function is called exactly once.

    Raises UserError: a spec of no known form, no such file or name, data that does not fit the graph, an
    exception in the user's code (its last line and place; the original is the cause), a function that returns
    something else; with exit code 4 a demo whose package is missing.
    """
    if spec.startswith("demo:"):
        _no_data(spec, data)
        from ironlaw.workloads.demos import demo

        return demo(spec.removeprefix("demo:"))
    path, separator, name = spec.rpartition(":")
    if separator and path.endswith(".py"):
        _no_data(spec, data)
        return _from_file(spec, Path(path), name)
    if spec.endswith(".onnx"):
        from ironlaw.workloads.onnxdata import workload

        return workload(Path(spec), data)
    if spec.endswith(".py"):
        raise UserError(spec, "names no workload in the file", f"Give {spec}:NAME, the function that returns it.")
    raise UserError(spec, "is not a workload", _FORMS)


def _no_data(spec: str, data: Path | None) -> None:
    if data is not None:
        raise UserError(f"--data {data}", f"does not go with {spec}", "It is for .onnx files; leave it out.")


def _from_file(spec: str, path: Path, name: str) -> Inference:
    module = load_module(path)
    if not hasattr(module, name):
        found = [n for n, v in vars(module).items() if _could_be(v, module.__name__) and not n.startswith("_")]
        raise UserError(
            spec, f"{path.name} has no {name!r}", f"It has: {', '.join(found)}." if found else "It has no functions."
        )
    value: Any = getattr(module, name)
    if callable(value) and not isinstance(value, Inference):
        try:
            value = value()
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise blamed(error, spec, "raises") from error
    if not isinstance(value, Inference):
        raise UserError(
            spec, f"is {_words(value)}, wanted an il.Inference", "Return il.Inference(model, example, ...)."
        )
    return value


def _could_be(value: Any, module: str) -> bool:
    return isinstance(value, Inference) or (callable(value) and getattr(value, "__module__", "") == module)


def _words(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
