"""Splitting and padding: calling something of one batch size with any number of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.records import TensorSpec, UserError

Array = NDArray[Any]
Call = Callable[[list[Array]], list[Array]]


def examples_in(arrays: Sequence[Array], inputs: Sequence[TensorSpec]) -> int:
    """How many examples the batched inputs hold.

    Raises UserError when they disagree, hold none, or when no input has a batch axis (then it is 1).
    """
    lengths = {a.shape[0] for a, spec in zip(arrays, inputs, strict=True) if spec.batched and a.ndim}
    if len(lengths) > 1 or 0 in lengths:
        raise UserError(
            "predict", f"inputs hold {sorted(lengths)} examples along axis 0", "Give every input the same, at least 1."
        )
    return lengths.pop() if lengths else 1


def in_batches(
    call: Call, arrays: Sequence[Array], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], batch: int
) -> list[Array]:
    """``call`` on ``arrays`` in chunks of exactly ``batch`` examples; the last is padded by repeating its last one.

    Outputs are trimmed and joined along axis 0. Raises UserError when an output does not follow the batch and the
    call holds another number of examples than ``batch``: what it should be for them cannot be told from parts.
    """
    count = examples_in(arrays, inputs)
    loose = [spec.name for spec in outputs if not spec.batched]
    if loose and count != batch:
        raise UserError(
            "predict",
            f"called with {count} examples, but output {loose[0]!r} has no batch axis to cut or join",
            f"Call it with exactly {batch}, as in the example, or return only outputs with one row an example.",
        )
    parts: list[list[Array]] = []
    for start in range(0, count, batch):
        size = min(batch, count - start)
        chunk = [
            _pad(a[start : start + size], batch) if spec.batched and a.ndim else a
            for a, spec in zip(arrays, inputs, strict=True)
        ]
        found = call(chunk)
        parts.append([o[:size] if spec.batched and o.ndim else o for o, spec in zip(found, outputs, strict=True)])
    return [
        np.concatenate([part[i] for part in parts]) if spec.batched and parts[0][i].ndim else parts[0][i]
        for i, spec in enumerate(outputs)
    ]


def _pad(array: Array, batch: int) -> Array:
    missing = batch - len(array)
    return array if not missing else np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
