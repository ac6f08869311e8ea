"""From what a person types to a workload: ``file.py:name``, ``model.onnx`` with ``--data``, ``demo:NAME``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ironlaw.records import UserError
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.source import blamed, load_module
from ironlaw.workloads.training import Training

_FORMS = "Give file.py:name, model.onnx with --data FILE.npz, or demo:NAME."
Workload = Inference | Training


def load(spec: str, *, data: Path | None = None) -> Workload:
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


def is_workload(spec: str) -> bool:
    """Whether ``spec`` has the form of one: a demo, a Python file, an ONNX graph."""
    return spec.startswith("demo:") or spec.endswith((".onnx", ".py")) or spec.rpartition(":")[0].endswith(".py")


def given(workload: Any, *, data: str | Path | None = None) -> Workload:
    """What the user gave: a workload itself, or what its spec names, which is then also its name."""
    if isinstance(workload, Workload):
        return workload
    found = load(str(workload), data=Path(data) if data else None)
    return replace(found, name=found.name or str(workload))


def served(workload: Any, *, data: str | Path | None = None) -> Inference:
    """As :func:`given`, where only a model that is served will do. Raises UserError for a training job."""
    found = given(workload, data=data)
    if isinstance(found, Training):
        name = found.name or "workload"
        raise UserError(name, "is a training job, wanted an il.Inference", "Ask where its time goes: ironlaw diagnose.")
    return found


def _no_data(spec: str, data: Path | None) -> None:
    if data is not None:
        raise UserError(f"--data {data}", f"does not go with {spec}", "It is for .onnx files; leave it out.")


def _from_file(spec: str, path: Path, name: str) -> Workload:
    module = load_module(path)
    if not hasattr(module, name):
        found = [n for n, v in vars(module).items() if _could_be(v, module.__name__) and not n.startswith("_")]
        raise UserError(
            spec, f"{path.name} has no {name!r}", f"It has: {', '.join(found)}." if found else "It has no functions."
        )
    value: Any = getattr(module, name)
    if callable(value) and not isinstance(value, Workload):
        try:
            value = value()
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise blamed(error, spec, "raises") from error
    if not isinstance(value, Workload):
        raise UserError(
            spec,
            f"is {_words(value)}, wanted an il.Inference or an il.Training",
            "Return il.Inference(model, example, ...) or il.Training(model, data, loss, optimiser, ...).",
        )
    return value


def _could_be(value: Any, module: str) -> bool:
    return isinstance(value, Workload) or (callable(value) and getattr(value, "__module__", "") == module)


def _words(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
