"""The ``predict`` that the user's ``evaluate`` calls: it behaves like the model whatever runtime is behind it.

Batches of another size than the artefact's are split or padded. Outputs of every call are remembered in a
small form (the arg-max of each row), so that two candidates can be compared where only a scalar is given.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ironlaw.measure.paired import Unit
from ironlaw.measure.process import WorkerFailure
from ironlaw.records import Artefact, Outcome, UserError
from ironlaw.worker import read_arrays, write_arrays


class Predictor:
    """Sends arrays to a worker that holds the artefact. Use as a context manager."""

    def __init__(self, artefact: Artefact, *, memory_limit_bytes: int | None, time_limit_s: float) -> None:
        self._artefact = artefact
        shared = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - memory, private by mkdtemp
        self._folder = tempfile.TemporaryDirectory(prefix="ironlaw-", dir=shared)
        self._path = str(Path(self._folder.name) / "arrays")
        self._unit = Unit(artefact, memory_limit_bytes=memory_limit_bytes, time_limit_s=time_limit_s)
        self.decisions: list[np.ndarray] = []

    def __enter__(self) -> Self:
        try:
            self._unit.load(warm_limit_s=0.0)
        except WorkerFailure:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._unit.close()
        self._folder.cleanup()

    def certificate(self) -> dict[str, Any]:
        """The worker's certificate, as data."""
        data: dict[str, Any] = self._unit.ask_first("certify")["certificate"]
        return data

    def profile(self, calls: int) -> list[dict[str, Any]]:
        """Operators of one call with their times, as data; a pass of its own."""
        data: list[dict[str, Any]] = self._unit.ask_first("profile", calls=calls)["ops"]
        return data

    def inspect(self) -> dict[str, Any] | None:
        """What the worker sees inside the model, as data; None where the runtime has no way to look."""
        data: dict[str, Any] | None = self._unit.ask_first("inspect")["inspection"]
        return data

    def __call__(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs for inputs in the order of ``artefact.inputs``; axis 0 is the batch."""
        self._check(arrays)
        batch = self._artefact.execution.batch
        rows = arrays[0].shape[0] if arrays and arrays[0].ndim else batch
        batched = [spec.batched for spec in self._artefact.inputs]
        parts = []
        for start in range(0, rows, batch):
            chunk = [a[start : start + batch] if b else a for a, b in zip(arrays, batched, strict=True)]
            parts.append(self._one(chunk, batched, min(batch, rows - start), batch))
        outputs = [np.concatenate(column) if column[0].ndim else column[0] for column in zip(*parts, strict=True)]
        self._remember(outputs, rows)
        return outputs

    def _one(self, chunk: list[np.ndarray], batched: list[bool], rows: int, batch: int) -> list[np.ndarray]:
        if rows < batch:
            chunk = [_pad(a, batch - rows) if b else a for a, b in zip(chunk, batched, strict=True)]
        described = write_arrays(self._path, chunk)
        answer = self._unit.ask_first("predict", path=self._path, inputs=described)
        outputs = read_arrays(self._path + ".out", answer["outputs"])
        if not all(np.isfinite(o).all() for o in outputs if np.issubdtype(o.dtype, np.floating)):
            raise WorkerFailure(Outcome.NOT_FINITE, "the outputs on the evaluation data hold NaN or Inf")
        specs = self._artefact.outputs
        return [o[:rows] if (not specs or specs[i].batched) and o.ndim else o for i, o in enumerate(outputs)]

    def _check(self, arrays: list[np.ndarray]) -> None:
        specs = self._artefact.inputs
        if len(arrays) != len(specs):
            raise UserError(
                "evaluate", f"predict was called with {len(arrays)} inputs, the model takes {len(specs)}",
                "Call predict as the model is called: same inputs, same order.",
            )  # fmt: skip
        for array, spec in zip(arrays, specs, strict=True):
            skip = 1 if spec.batched else 0
            if array.shape[skip:] != spec.shape[skip:]:
                raise UserError(
                    "evaluate",
                    f"predict was called with {spec.name} of shape {array.shape}, the example has {spec.shape}",
                    "Only axis 0 may differ from the example: pad or crop the others.",
                )

    def _remember(self, outputs: list[np.ndarray], rows: int) -> None:
        first = outputs[0] if outputs else np.empty(0)
        if first.ndim >= 2 and first.shape[0] == rows:
            self.decisions.append(first.reshape(rows, -1).argmax(axis=1))


def _pad(array: np.ndarray, rows: int) -> np.ndarray:
    return np.concatenate([array, np.repeat(array[-1:], rows, axis=0)])
