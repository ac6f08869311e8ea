"""A training job as a fresh process sees it: pickled by value into our own store.

The user's file is never imported again, so every module of theirs travels inside the pickle; data that is opened by a
function is opened over there. ``evaluate`` stays behind, since steps do not need it. The pickle is only ever read from
the folder that this process wrote it to. Refused, by name: a part that cannot be pickled.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import os
import pickle
import sys
import uuid
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ironlaw.records import UserError
from ironlaw.workloads.source import is_local
from ironlaw.workloads.training import Training

FILE = "job.pkl"
_PARTS = ("model", "data", "loss", "optimiser")


def pack(training: Training, folder: Path) -> Path:
    """Write the job into ``folder``; returns the file. Raises UserError for a part that cannot be pickled."""
    with _by_value():
        try:
            data = _dumps(dataclasses.replace(training, evaluate=None))
        except Exception as error:
            raise UserError(
                f"training job: {_culprit(training)}",
                f"cannot be pickled: {type(error).__name__}: {error}",
                "Give data as a function that opens it (data=lambda: DataLoader(...)); "
                "keep files, locks and connections out of model, loss and optimiser.",
            ) from error
    path = folder / FILE
    with path.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
    return path


def unpack(path: Path) -> Training:
    """The job that :func:`pack` wrote; raises what unpickling raises."""
    with path.open("rb") as file:
        training = pickle.load(file)
    assert isinstance(training, Training), "only pack() writes these files"
    return training


def identity(value: Any) -> str | None:
    """A digest that is the same in another process that makes the same value; None where it cannot be pickled.

    Tensors count by their content, code by what it says. A set of strings in the user's code has another order in
    every process, and so another digest: such a job is measured anew.
    """
    import torch

    with _by_value(), _same_ids():
        try:
            data = _dumps(value, lambda found: _content(found) if isinstance(found, torch.Tensor) else None)
        except Exception:  # noqa: BLE001 - pack() says what is wrong with it
            return None
    return hashlib.sha256(data).hexdigest()[:16]


def _content(tensor: Any) -> str:
    import torch

    flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor.detach().cpu()
    digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.requires_grad} {digest}"


def _dumps(value: Any, instead: Callable[[Any], str | None] = lambda found: None) -> bytes:
    """Cloudpickle, with the files of code objects kept: an error over there must name the user's line.

    What ``instead`` gives for an object is written in its place.
    """
    import cloudpickle

    reduced = cloudpickle.Pickler.dispatch_table[CodeType]
    placed = {CodeType: lambda code: (_placed, (code.co_filename, *reduced(code)))}
    table = ChainMap(placed, cloudpickle.Pickler.dispatch_table)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table = table

        def reducer_override(self, found: Any) -> Any:
            words = instead(found)
            return super().reducer_override(found) if words is None else (str, (words,))

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


@contextmanager
def _same_ids() -> Iterator[None]:
    """While it holds, cloudpickle numbers the user's classes instead of drawing an id for each at random."""
    from cloudpickle import cloudpickle

    drawn = cloudpickle.uuid
    cloudpickle.uuid = _Numbers
    try:
        yield
    finally:
        cloudpickle.uuid = drawn


class _Numbers:
    """Stands for the module ``uuid``; the count goes on, so that no two classes of this process share an id."""

    _count = itertools.count()

    @classmethod
    def uuid4(cls) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_OID, f"ironlaw {next(cls._count)}")


def _placed(filename: str, make: Callable[..., CodeType], args: tuple[Any, ...]) -> CodeType:
    """The code object that ``make(*args)`` gives, from its file."""
    return make(*args).replace(co_filename=filename)


def _culprit(training: Training) -> str:
    """The first part that cannot be pickled alone, in words."""
    for part in _PARTS:
        try:
            _dumps(getattr(training, part))
        except Exception:  # noqa: BLE001 - whatever it raises, this is the part
            return part
    return " with ".join(_PARTS)


@contextmanager
def _by_value() -> Iterator[None]:
    """While it holds, cloudpickle writes the code of all modules of the user into the pickle."""
    import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()
    modules = [m for name, m in list(sys.modules.items()) if name not in known and _travels(name, m)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _travels(name: str, module: object) -> bool:
    """Whether a module is the user's; the installed ones are told by their path first, since there are thousands."""
    if not isinstance(module, ModuleType) or module.__name__ != name:
        return False
    file = getattr(module, "__file__", None) or ""
    installed = name.partition(".")[0] in sys.stdlib_module_names or "site-packages" in file
    return not installed and is_local(name)
