"""Counts one call of a model in whatever form it is on disk.

Why by form: each form is counted where its operators are visible (torch below autograd, ONNX from the graph).
An OpenVINO folder is counted from the ONNX or torch model of the same snapshot, since the work that the model
asks for is the same; ``source`` then says so. A torch model that is on the meta device, or leaves no memory to run
in, is counted on fake tensors; the others are run, since code that looks at values goes another way on fakes. Nothing
is timed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.measure.ledger_flops import Formula, counts
from ironlaw.records import Form, Ledger, ModelFile, Snapshot, UserError

if TYPE_CHECKING:
    import numpy as np

NAMES = {Form.EAGER: "model.pkl", Form.EXPORTED: "model.pt2", Form.ONNX: "model.onnx"}
"""The file of each form inside its folder."""


def register(
    name: str,
    *,
    flops: Formula,
    bytes: Formula | None = None,  # noqa: A002 - the field's word
    kind: str = "other",
) -> None:
    """Tell the ledger what a custom operator ``namespace::name`` of ``torch.library`` costs.

    ``flops(args, kwargs, out)`` and ``bytes(args, kwargs, out)`` get the arguments and the result of a call; an FMA is
    two FLOPs. Without ``bytes`` every operand is read and every result written once, as for any operator. A
    registration holds for all overloads, in this process, and replaces an earlier one. An operator that is not
    registered is listed as uncounted. To be counted on fake tensors it also needs ``torch.library.register_fake``.

    Raises ValueError for a kind that is not one of ``kinds.KINDS``, and for a name without a namespace.

    >>> register("mylib::swish", kind="elementwise", flops=lambda args, kwargs, out: 4.0 * out.numel())
    """
    counts(name, kind=kind, traffic=bytes)(flops)


def ledger_of(model: ModelFile, snapshot: Snapshot, batch: int, *, cache_bytes: int | None) -> Ledger:
    """The ledger of one call at ``batch``; ``cache_bytes`` is the last-level cache, None for one without end.

    Raises ``UserError`` where the form cannot be counted and no other form of the snapshot can.
    """
    if model.form == Form.ONNX:
        return _from_onnx(_file(model), snapshot, batch, cache_bytes)
    if model.form in (Form.EAGER, Form.EXPORTED):
        return _from_torch(model, snapshot, batch, cache_bytes)
    other = _countable(snapshot)
    if other is None:
        raise UserError(
            f"form {model.form!r}", "cannot be counted, nor is the model there in another form", "Tune from the source."
        )
    return ledger_of(other, snapshot, batch, cache_bytes=cache_bytes)


def example_arrays(snapshot: Snapshot, batch: int) -> dict[str, np.ndarray]:
    """The example inputs in the order of ``snapshot.inputs``, repeated or cut along axis 0 to ``batch`` rows."""
    import numpy as np

    found = {}
    with np.load(Path(snapshot.folder) / "example.npz", allow_pickle=False) as stored:
        for spec in snapshot.inputs:
            array = stored[spec.name if spec.name in stored.files else f"0.{spec.name}"]
            if spec.batched and array.ndim and array.shape[0] != batch:
                array = np.resize(array, (batch, *array.shape[1:]))
            found[spec.name] = np.ascontiguousarray(array)
    return found


def _from_onnx(path: Path, snapshot: Snapshot, batch: int, cache_bytes: int | None) -> Ledger:
    from ironlaw.measure.ledger_onnx import count_onnx

    return count_onnx(path, example_arrays(snapshot, batch), batch=batch, cache_bytes=cache_bytes)


def _from_torch(model: ModelFile, snapshot: Snapshot, batch: int, cache_bytes: int | None) -> Ledger:
    import torch

    from ironlaw.measure.ledger_torch import count_module, count_on_fakes

    module = _module(model)
    inputs = tuple(torch.from_numpy(array) for array in example_arrays(snapshot, batch).values())
    count = count_module if _can_run(module) else count_on_fakes
    return count(module, inputs, batch=batch, cache_bytes=cache_bytes, source=model.form)


def _can_run(module: Any) -> bool:
    """Whether the weights hold data and as much memory as they take is left for everything else."""
    import psutil
    import torch

    if not isinstance(module, torch.nn.Module):
        return True
    held = [*module.parameters(), *module.buffers()]
    if any(one.device.type == "meta" for one in held):
        return False
    return sum(int(one.nbytes) for one in held) <= int(psutil.virtual_memory().available)


def _module(model: ModelFile) -> Any:
    """The callable module of a torch form; the pickle is one that ironlaw wrote into its own store."""
    import pickle

    import torch

    if model.form == Form.EXPORTED:
        return torch.export.load(_file(model)).module()
    with _file(model).open("rb") as stream:
        module = pickle.load(stream)
    return module.eval() if isinstance(module, torch.nn.Module) else module


def _file(model: ModelFile) -> Path:
    path = Path(model.path)
    return path / NAMES[model.form] if path.is_dir() else path


def _countable(snapshot: Snapshot) -> ModelFile | None:
    """The snapshot's own model, or another form of it that was made on the way."""
    if snapshot.model.form in NAMES:
        return snapshot.model
    for form in (Form.ONNX, Form.EXPORTED, Form.EAGER):
        path = Path(snapshot.folder) / "forms" / form / NAMES[form]
        if path.exists():
            return ModelFile(form=form, path=str(path), digest="")
    return None
