"""Calibration batches of a snapshot as feeds by input name, checked before a quantiser sees them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ironlaw.forms import files
from ironlaw.records import Candidate, UserError

if TYPE_CHECKING:
    import numpy as np


def feeds(candidate: Candidate, fixed_batch: int | None, limit: int) -> tuple[list[dict[str, np.ndarray]], int]:
    """The batches, up to ``limit`` rows (0: all), and how many rows they hold.

    Where the graph's batch is fixed, a batch of another size is repeated or cut to it. Raises ``UserError``
    when there are none, or when one holds NaN or Inf.
    """
    import numpy as np

    inputs, out, rows = candidate.snapshot.inputs, [], 0
    with np.load(Path(candidate.snapshot.folder) / "calibration.npz", allow_pickle=False) as stored:
        for index in range(candidate.snapshot.calibration_batches):
            arrays = {spec.name: stored[f"{index}.{spec.name}"] for spec in inputs}
            bad = [name for name, a in arrays.items() if a.dtype.kind == "f" and not np.isfinite(a).all()]
            if bad:
                raise UserError(f"calibration batch {index}", f"{bad[0]} holds NaN or Inf", "Give finite batches.")
            rows += next((len(arrays[s.name]) for s in inputs if s.batched), 1)
            out.append(files.resized(arrays, inputs, fixed_batch) if fixed_batch else arrays)
            if limit and rows >= limit:
                break
    if not out:
        raise UserError("calibration", "there are no batches", "Pass calibration=batches to the workload.")
    return out, rows
