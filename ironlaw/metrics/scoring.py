"""Asks any ``evaluate`` of a user, ready metric or function, and says which decisions two runs differ in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ironlaw.metrics.arrays import Array, as_array
from ironlaw.metrics.ready import Predict, Ready, Stop
from ironlaw.metrics.scores import Scalar, Scores
from ironlaw.records import UserError


def reference_of(evaluate: Any, predict: Predict) -> list[list[Array]] | None:
    """The baseline's outputs a batch, for fidelity metrics; None for all others."""
    return evaluate.reference(predict) if getattr(evaluate, "fidelity", False) else None


def score(
    evaluate: Any,
    predict: Predict,
    *,
    metric: str | None = None,
    higher_is_better: bool = True,
    reference: list[list[Array]] | None = None,
    stop: Stop | None = None,
) -> Scores | Scalar:
    """What ``evaluate`` says of ``predict``, in one of two shapes.

    ``stop`` is asked after each batch of a ready metric with the scores so far; True ends the pass. A user's
    own function always runs to its end. Raises UserError when the answer is neither a number, a 1-D array
    nor :class:`Scores`. NaN is let through: it is the judge who fails it.
    """
    if isinstance(evaluate, Ready):
        return evaluate.scores(predict, reference, stop)
    answer = evaluate(predict)
    if isinstance(answer, Scores):
        return answer
    name = metric or "score"
    values = _numbers(answer)
    if values is None:
        raise UserError(
            "evaluate",
            f"returned {type(answer).__name__}, wanted a number, a 1-D array of scores or il.Scores",
            "Return accuracy as a float, or one score an example.",
        )
    if values.ndim == 0:
        return Scalar(value=float(values), metric=name, higher_is_better=higher_is_better)
    return Scores(values=values, metric=name, higher_is_better=higher_is_better)


def _numbers(answer: Any) -> Array | None:
    """``answer`` as float64, or None when it is neither numbers nor truth values."""
    try:
        values = as_array(answer)
    except ValueError:
        return None
    return values.astype(np.float64) if values.dtype.kind in "biuf" else None


def disagreements(reference: Sequence[Array], outputs: Sequence[Array], tolerance: float = 1e-3) -> Array:
    """Which examples differ between two runs of the same inputs: (examples,) bool.

    A first output of shape (examples, classes >= 2) disagrees where its arg-max does; anything else where it
    moved by more than ``tolerance`` of the largest magnitude of that output.
    """
    ours, theirs = as_array(outputs[0]), as_array(reference[0])
    if ours.ndim == 2 and ours.shape[1] >= 2 and np.issubdtype(ours.dtype, np.floating):
        return np.asarray(ours.argmax(1) != theirs.argmax(1))
    differs = np.zeros(len(ours), dtype=bool)
    for one, other in zip(outputs, reference, strict=True):
        a, b = (as_array(v).reshape(len(ours), -1).astype(np.float64) for v in (one, other))
        differs |= ~(np.abs(a - b).max(1, initial=0.0) <= tolerance * np.abs(b).max(initial=0.0))
    return differs
