"""Eager -> exported: a graph of ATen operators by ``torch.export``.

The batch axis stays free where the snapshot says that it may change; when the model's own code
pins it (a reshape by a constant), the export is made at the snapshot's batch instead, and
:func:`is_dynamic` of the result says so. An export at batch 1 would be specialised to it, so the
example is repeated to two rows first. Traces of the user's source (stack traces, paths) are removed.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ironlaw.forms import eager, files
from ironlaw.records import Snapshot


def convert(source: Path, snapshot: Snapshot, folder: Path) -> str:
    """Write ``folder/model.pt2`` from the pickled module at ``source``."""
    program = export(eager.load(source), snapshot)
    return save(program, folder / "model.pt2")


def export(module: Any, snapshot: Snapshot) -> Any:
    """The exported program of ``module``, with a dynamic batch when the snapshot and the model allow it."""
    import torch
    from torch._dynamo.exc import UserError as ConstraintError

    if snapshot.dynamic:
        args = tensors(snapshot, max(2, snapshot.batch))
        shapes = _dynamic_shapes(module, snapshot, torch.export.Dim("batch", min=1))
        try:
            return plain(torch.export.export(module, args, dynamic_shapes=shapes))
        except ConstraintError:
            pass  # the model pins its batch: export it at the snapshot's
    return plain(torch.export.export(module, tensors(snapshot, snapshot.batch)))


def tensors(snapshot: Snapshot, batch: int) -> tuple[Any, ...]:
    """The example inputs as tensors at ``batch`` rows."""
    import torch

    return tuple(torch.from_numpy(array) for array in files.example(snapshot, batch).values())


def _dynamic_shapes(module: Any, snapshot: Snapshot, batch: Any) -> tuple[Any, ...]:
    """One entry a parameter of ``forward``; what goes to ``*args`` is one nested tuple."""
    each: Sequence[Any] = [{0: batch} if spec.batched else None for spec in snapshot.inputs]
    parameters = inspect.signature(module.forward).parameters.values()
    named = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    rest = tuple(each[named:])
    return (*each[:named], rest) if rest else tuple(each)


def plain(program: Any) -> Any:
    """The program without notes of the source that it came from."""
    for node in program.graph.nodes:
        for key in ("stack_trace", "source_fn_stack", "nn_module_stack", "torch_fn", "from_node"):
            node.meta.pop(key, None)
    return program


def save(program: Any, path: Path) -> str:
    """Write the program; the digest of what it computes (the file itself holds dates)."""
    import torch

    torch.export.save(program, path)
    return digest(program)


def load(path: Path) -> Any:
    """The exported program at ``path``."""
    import torch

    return torch.export.load(path)


def digest(program: Any) -> str:
    """sha256 over the graph, the signature and every tensor of an exported program."""
    total = hashlib.sha256(f"{program.graph}\n{program.graph_signature}\n{program.range_constraints}".encode())
    for name, tensor in sorted({**program.state_dict, **program.constants}.items()):
        if hasattr(tensor, "detach"):
            plain = tensor.detach().cpu().contiguous()
            total.update(f"{name}{plain.dtype}{tuple(plain.shape)}".encode())
            total.update(plain.flatten().view(dtype=_bytes()).numpy().tobytes() if plain.numel() else b"")
    return total.hexdigest()


def _bytes() -> Any:
    import torch

    return torch.uint8


def is_dynamic(program: Any) -> bool:
    """Whether the batch axis of an exported program is free."""
    return bool(program.range_constraints)
