"""PyTorch on this host: the eager module or an exported program, as a recipe.

Artefacts are recipes (weights, code, settings), since an eager module and ``torch.compile`` live
only in a process. Options: ``layout`` (``contiguous``, ``channels_last``), ``compile`` with ``mode``
and ``freezing``; precision ``fp32``, ``bf16``, ``fp16``. Compilation happens in :meth:`Torch.load`, so that
its seconds are reported as loading and never leak into a timed call. It refuses to pretend: a
certificate comes from a profile of what ran, and a model that cannot be cast whole says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ironlaw.contracts import Session
from ironlaw.forms import convert, nearest
from ironlaw.records import Artefact, Candidate, Certificate, Execution, Form, Inspection, KernelRate, Op, UserError
from ironlaw.targets import _torch_run as runs

if TYPE_CHECKING:
    import numpy as np

FILES = {Form.EAGER: "model.pkl", Form.EXPORTED: "model.pt2"}


class Torch:
    """The target ``torch``."""

    name: ClassVar[str] = "torch"
    forms: ClassVar[tuple[str, ...]] = (Form.EAGER, Form.EXPORTED)
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch"})

    def export(self, candidate: Candidate, folder: Path) -> Artefact:
        """Copy the model into ``folder`` and try it once at the execution's batch and precision.

        Raises:
            UserError: the model is fixed at another batch, or is in a form that torch cannot run.
            RuntimeError: the model does not run this way (a view that needs another layout, say).
        """
        runs.check_batch(candidate)
        form = nearest(candidate.model.form, self.forms)
        if form is None:
            given = f"a model in the form {candidate.model.form!r}"
            raise UserError(given, "torch cannot run it", f"Give it as {' or '.join(self.forms)}.")
        candidate = convert(candidate, form)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILES[form]
        shutil.copyfile(candidate.model.path, path)
        inputs = _inputs(candidate)
        candidate = runs.with_execution(candidate, runs.settle_cast(path, form, candidate.execution, inputs))
        snippet = _snippet(candidate, path.name)
        return runs.describe(candidate, folder, [path.name], kind="recipe", target=self.name, snippet=snippet)

    def load(self, artefact: Artefact) -> Session:
        """The session; threads are set for the process, and a compiled model is compiled here."""
        return _TorchSession(artefact)

    def calibrate(self, threads: int, seconds: float) -> tuple[KernelRate, ...]:
        """Rates of eager operators on calibration shapes."""
        from ironlaw.targets import _torch_rates

        found: tuple[KernelRate, ...] = _torch_rates.rates(threads, seconds)
        return found


class _TorchSession:
    def __init__(self, artefact: Artefact) -> None:
        import torch

        self._artefact = artefact
        execution = artefact.execution
        torch.set_num_threads(execution.threads)
        path = Path(artefact.folder) / artefact.files[0]
        form = Form.EAGER if path.name == FILES[Form.EAGER] else Form.EXPORTED
        self._runner = runs.Runner(runs.read(path, form), execution)
        if execution.option("compile"):
            self._runner.run = _compiled(self._runner.module, execution)
            self._runner(*runs.example(artefact))

    def prepare(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        return runs.tensors(arrays)

    def call(self, native: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._runner(*native)

    def fetch(self, result: tuple[Any, ...]) -> list[np.ndarray]:
        return runs.fetch(result)

    def profile(self, native: tuple[Any, ...], calls: int) -> tuple[Op, ...]:
        from ironlaw.measure import profile_torch

        ops: tuple[Op, ...] = profile_torch.profile(lambda: self.call(native), calls)
        return ops

    def inspect(self, native: tuple[Any, ...]) -> Inspection:
        """Values, threads and compiled code; other batch sizes are tried where the user's own code is compiled."""
        from ironlaw.measure import inspection

        vary = not self._artefact.execution.option("compile") and all(one.batched for one in self._artefact.inputs)
        seen: Inspection = inspection.inspect_torch(
            self._runner.module, lambda *inputs: self.call(inputs), native, vary=vary
        )
        return seen

    def certify(self) -> Certificate:
        native = runs.example(self._artefact)
        execution = self._artefact.execution
        extra = ["operators: a profile of one call", f"layout: {_layout(self._runner.module)}"]
        if execution.precision != "fp32":
            extra.append(f"cast: {execution.option('cast')}")
        if execution.option("compile"):
            extra.append(f"compiled: {_graphs()}")
        return runs.certificate(self._artefact, runs.heavy_ops(lambda: self.call(native)), self._runner.module, extra)


def _inputs(candidate: Candidate) -> tuple[Any, ...]:
    from ironlaw.forms import files

    return runs.tensors(list(files.example(candidate.snapshot, candidate.execution.batch).values()))


def _compiled(module: Any, execution: Execution) -> Any:
    """``torch.compile`` at fixed shapes, without the pool of compiler processes that would outlive it."""
    import torch
    import torch._inductor.config as inductor

    inductor.compile_threads = 1
    inductor.freezing = bool(execution.option("freezing", False))
    return torch.compile(module, dynamic=False, mode=str(execution.option("mode", "default")))


def _graphs() -> str:
    from torch._dynamo.utils import counters

    breaks = sum(counters["graph_break"].values())
    return f"{counters['stats']['unique_graphs']} graphs, {breaks} graph breaks"


def _layout(module: Any) -> str:
    """How many convolution weights lie channels-last in memory, of how many."""
    import torch

    weights = [p for p in module.parameters() if p.dim() == 4]
    last = sum(p.is_contiguous(memory_format=torch.channels_last) for p in weights)
    return f"{last} of {len(weights)} rank-4 weights are channels-last"


def _snippet(candidate: Candidate, name: str) -> str:
    """Lines that run the recipe from its own folder with torch (and, for a pickle, cloudpickle)."""
    execution = candidate.execution
    precision = runs.dtype(execution.precision)
    whole = precision is not None and execution.option("cast") == "whole"
    read = f'pickle.load(open("{name}", "rb"))' if name.endswith(".pkl") else f'torch.export.load("{name}").module()'
    moves = (f".to({precision})" if whole else "") + (
        ".to(memory_format=torch.channels_last)" if execution.option("layout") == "channels_last" else ""
    )
    modes = "torch.inference_mode()"
    if precision is not None and not whole:
        modes += f', torch.autocast("cpu", dtype={precision})'
    inputs = ", ".join(_read_input(spec, precision if whole else None) for spec in candidate.snapshot.inputs)
    lines = [
        "import pickle, numpy, torch" if name.endswith(".pkl") else "import numpy, torch",
        f"torch.set_num_threads({execution.threads})",
        f"model = {read}{moves}",
        'arrays = numpy.load("example.npz")',
        f"inputs = [{inputs}]",
        f"with {modes}:",
        "    outputs = model(*inputs)",
    ]
    if execution.option("compile"):
        lines.insert(3, _compile_line(execution))
    if execution.variables:
        lines[0] += "  # start with " + " ".join(f"{k}={v}" for k, v in execution.variables)
    return "\n".join(lines)


def _compile_line(execution: Execution) -> str:
    mode = str(execution.option("mode", "default"))
    line = f"model = torch.compile(model, dynamic=False, mode={mode!r})"
    return f"import torch._inductor.config as c; c.freezing = True; {line}" if execution.option("freezing") else line


def _read_input(spec: Any, precision: Any) -> str:
    cast = f".to({precision})" if precision is not None and spec.dtype.startswith("float") else ""
    return f'torch.from_numpy(arrays["{spec.name}"]){cast}'
