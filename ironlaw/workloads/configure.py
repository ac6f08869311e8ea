"""A training job under an execution: the user's objects with the loader, precision and checkpoints that it names.

The options of a training execution, read here and nowhere else: ``loader.workers``, ``loader.prefetch``,
``loader.persistent``, ``loader.pinned``, ``loader.sliced``, ``loader.decoded`` (True), ``checkpointing`` (True).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironlaw.records import Execution, UserError
from ironlaw.workloads.training import Training

LOADER = "loader."
DECODED = "decoded"
"""The folder of decoded samples, beside the packed job."""


def configured(training: Training, execution: Execution, folder: Path) -> Training:
    """The job as that execution runs it; the model is changed in place, so give one of your own.

    Raises UserError where the model has nothing to checkpoint, or a loader that is no DataLoader is to be changed.
    """
    from ironlaw.workloads import recipe

    if execution.option("checkpointing") and not recipe.checkpointed(training.model):
        raise UserError("model", "has no chain of blocks to checkpoint", "Leave checkpointing out.")
    changes = loader_settings(execution)
    if changes.pop("decoded", False):
        changes["decoded"] = folder / DECODED
    data = _Tuned(training.data, changes) if changes else training.data
    return dataclasses.replace(training, data=data, precision=execution.precision)


def loader_settings(execution: Execution) -> dict[str, Any]:
    """The arguments of ``recipe.tuned_loader`` that the execution names."""
    return {key.removeprefix(LOADER): value for key, value in execution.options if key.startswith(LOADER)}


class _Tuned:
    """Opens the user's loader and gives it other settings."""

    def __init__(self, data: Any, changes: dict[str, Any]) -> None:
        self._data: Callable[[], Any] = data if callable(data) else lambda: data
        self._changes = changes

    def __call__(self) -> Any:
        from torch.utils.data import DataLoader

        from ironlaw.workloads import recipe

        found = self._data()
        if not isinstance(found, DataLoader):
            kind = type(found).__name__
            raise UserError(f"data ({kind})", "is no DataLoader, whose settings can be changed", "Leave it as it is.")
        return recipe.tuned_loader(found, **self._changes)
