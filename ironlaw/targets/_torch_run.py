"""How the torch targets run a module: one wrapper that applies precision, layout and mode.

Both targets and their certificates go through here, so that what was exported, measured and
certified is one thing. Casting to the asked precision happens inside the call: the user's data
are what the snapshot says, and a cast that the shipped model needs belongs to its time. Where the
whole model cannot be cast (a constant of another dtype inside), autocast is used and said.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.forms import eager, exported, files
from ironlaw.records import Artefact, Candidate, Certificate, Execution, Form, Op, UserError

if TYPE_CHECKING:
    import numpy as np

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_LISTED = 64
"""Most fallbacks that a certificate names."""


def dtype(precision: str) -> Any:
    """The torch dtype of a precision word; None for fp32, which is as the model is.

    Raises:
        UserError: the word is not known to the torch targets.
    """
    import torch

    if precision not in DTYPES:
        raise UserError(f"precision {precision!r}", "the torch targets do not know it", f"Use {', '.join(DTYPES)}.")
    return None if precision == "fp32" else getattr(torch, DTYPES[precision])


def read(path: Path, form: str) -> Any:
    """The module in a file of the eager or the exported form."""
    if form == Form.EAGER:
        return eager.load(path)
    return exported.load(path).module(check_guards=False)


class Runner:
    """A module prepared for an execution: ``runner(*tensors)`` is one call of what ships."""

    def __init__(self, module: Any, execution: Execution) -> None:
        import torch

        self.precision = dtype(execution.precision)
        self.cast = str(execution.option("cast", "whole"))
        self.layout = str(execution.option("layout", "contiguous"))
        self.module = module
        if self.precision is not None and self.cast == "whole":
            self.module = self.module.to(self.precision)
        if self.layout == "channels_last":
            self.module = self.module.to(memory_format=torch.channels_last)
        self.run = self.module

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        import torch

        with torch.inference_mode():
            return as_tuple(self.traced(*inputs))

    def traced(self, *inputs: Any) -> Any:
        """One call as the model answers it, without a mode around it, so that it can be exported."""
        import torch

        if self.precision is None:
            return self.run(*self.laid_out(inputs))
        if self.cast == "whole":
            return self.run(*self.laid_out(self._narrow(inputs)))
        with torch.autocast("cpu", dtype=self.precision):
            return self.run(*self.laid_out(inputs))

    def laid_out(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs in the layout of the execution: only images (rank 4) have one."""
        import torch

        if self.layout != "channels_last":
            return list(inputs)
        return [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]

    def _narrow(self, inputs: Sequence[Any]) -> list[Any]:
        return [x.to(self.precision) if x.is_floating_point() else x for x in inputs]


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def tensors(arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
    """Arrays as tensors that share their memory (a read-only array is copied)."""
    import torch

    return tuple(torch.from_numpy(a if a.flags.writeable else a.copy()) for a in arrays)


def fetch(outputs: Sequence[Any]) -> list[np.ndarray]:
    """Outputs as arrays; bfloat16 and float16 become float32."""
    return [(o.float() if o.is_floating_point() and o.element_size() < 4 else o).numpy(force=True) for o in outputs]


def settle_cast(path: Path, form: str, execution: Execution, inputs: Sequence[Any]) -> Execution:
    """The execution with ``cast`` decided: the whole model where that runs, else autocast. Runs it once.

    Whatever else the model raises is raised: it cannot run this way.
    """
    if dtype(execution.precision) is None:
        Runner(read(path, form), execution)(*inputs)
        return execution
    whole = execution.with_options(cast="whole")
    try:
        Runner(read(path, form), whole)(*inputs)
    except RuntimeError:
        mixed = execution.with_options(cast="autocast")
        Runner(read(path, form), mixed)(*inputs)
        return mixed
    return whole


def check_batch(candidate: Candidate) -> None:
    """Refuse a batch that the model cannot take."""
    snapshot, batch = candidate.snapshot, candidate.execution.batch
    if batch != snapshot.batch and not snapshot.dynamic:
        raise UserError(f"batch {batch}", f"the model is fixed at batch {snapshot.batch}", "Keep that batch.")


def describe(candidate: Candidate, folder: Path, names: Sequence[str], **fields: Any) -> Artefact:
    """Write ``example.npz`` at the execution's batch and describe the artefact in ``folder``."""
    import numpy as np

    snapshot, batch = candidate.snapshot, candidate.execution.batch
    arrays: dict[str, Any] = files.example(snapshot, batch)
    np.savez(folder / files.EXAMPLE, **arrays)
    return Artefact(
        **{
            "folder": str(folder),
            "files": tuple(names),
            "execution": candidate.execution,
            "inputs": files.at_batch(snapshot.inputs, batch),
            "outputs": files.at_batch(snapshot.outputs, batch),
            "size_bytes": sum((folder / name).stat().st_size for name in names),
            "example": files.EXAMPLE,
            **fields,
        }
    )


def example(artefact: Artefact) -> tuple[Any, ...]:
    """The artefact's own example inputs as tensors, in the order of its inputs."""
    import numpy as np

    with np.load(Path(artefact.folder) / files.EXAMPLE, allow_pickle=False) as stored:
        return tensors([stored[spec.name] for spec in artefact.inputs])


def heavy_ops(call: Callable[[], Any]) -> list[Op]:
    """The operators of arithmetic kinds in one call, from a profile of it."""
    from ironlaw.measure import profile_torch
    from ironlaw.measure.kinds import ARITHMETIC

    return [op for op in profile_torch.profile(call, 1) if op.kind in ARITHMETIC]


def certificate(artefact: Artefact, ran: Sequence[Op], module: Any, evidence: Sequence[str]) -> Certificate:
    """From the arithmetic operators that ran: each one's precision; the dtypes of the weights, threads."""
    import torch

    wanted = DTYPES[artefact.execution.precision]
    counts: dict[str, int] = {}
    for op in ran:
        counts[op.dtype] = counts.get(op.dtype, 0) + op.calls
    others = sorted({f"{op.name} {op.shape} ({op.dtype})" for op in ran if op.dtype != wanted})
    calls = sum(counts.values())
    said = [f"{calls} convolutions and products: {_words(counts)}", *evidence]
    if module is not None:
        said.append(f"parameters: {_words(parameter_dtypes(module))}")
    return Certificate(
        eligible=calls,
        converted=counts.get(wanted, 0),
        precisions=tuple(sorted({f"{op.name} {op.shape}": op.dtype for op in ran}.items())),
        fallbacks=tuple(others[:_LISTED]),
        providers=(("torch", torch.__version__),),
        threads=torch.get_num_threads(),
        proven=bool(ran) or module is not None,
        evidence=tuple(said),
    )


def parameter_dtypes(module: Any) -> dict[str, int]:
    """Number of parameters (elements) by dtype."""
    counts: dict[str, int] = {}
    for parameter in module.parameters():
        word = str(parameter.dtype).removeprefix("torch.")
        counts[word] = counts.get(word, 0) + parameter.numel()
    return counts


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "none"


def with_execution(candidate: Candidate, execution: Execution) -> Candidate:
    return dataclasses.replace(candidate, execution=execution)
