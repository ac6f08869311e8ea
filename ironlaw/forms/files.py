"""Files of a model: digests, example arrays, and folders that appear whole or not at all.

A digest is of content, never of a path or a date, so that the same model in another store is the
same model. Folders are written beside their place and renamed: a process killed half-way leaves a
``.part`` folder, never half a model, and of two processes that write the same folder the first wins.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ironlaw.records import ModelFile, Snapshot, TensorSpec

if TYPE_CHECKING:
    import numpy as np

DIGEST = "digest.txt"
"""Name of the file that keeps the digest of a cached conversion."""

EXAMPLE = "example.npz"


def digest_of(*paths: Path) -> str:
    """sha256 over the contents of files, in the order given."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                total.update(chunk)
    return total.hexdigest()


def model_file(form: str, path: Path) -> ModelFile:
    """A file on disk as a record."""
    return ModelFile(form=form, path=str(path), digest=digest_of(path))


@contextmanager
def publishing(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder``, which takes its place when the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        yield beside
        for path in beside.rglob("*"):
            if path.is_file():
                _sync(path)
        beside.chmod(0o755)
        try:
            beside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def example(snapshot: Snapshot, batch: int | None = None) -> dict[str, np.ndarray]:
    """The example inputs in the order of ``snapshot.inputs``, repeated or cut to ``batch`` rows."""
    import numpy as np

    with np.load(Path(snapshot.folder) / EXAMPLE, allow_pickle=False) as stored:
        prefix = "" if snapshot.inputs[0].name in stored.files else "0."  # named as calibration batches are
        arrays = {spec.name: stored[f"{prefix}{spec.name}"] for spec in snapshot.inputs}
    return arrays if batch is None else resized(arrays, snapshot.inputs, batch)


def resized(arrays: Mapping[str, np.ndarray], specs: Sequence[TensorSpec], batch: int) -> dict[str, np.ndarray]:
    """Arrays with axis 0 of the batched ones repeated or cut to ``batch`` rows; the others as they are."""
    import numpy as np

    return {
        spec.name: np.ascontiguousarray(np.resize(arrays[spec.name], (batch, *arrays[spec.name].shape[1:])))
        if spec.batched and arrays[spec.name].shape[0] != batch
        else np.ascontiguousarray(arrays[spec.name])
        for spec in specs
    }


def at_batch(specs: Sequence[TensorSpec], batch: int) -> tuple[TensorSpec, ...]:
    """Specifications with the batch axis set."""
    return tuple(
        dataclasses.replace(spec, shape=(batch, *spec.shape[1:])) if spec.batched and spec.shape else spec
        for spec in specs
    )
