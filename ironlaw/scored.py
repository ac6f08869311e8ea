"""What a pass over the evaluation data said, as data for the store and as a digest for keys."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from ironlaw import metrics
from ironlaw.verify.trained import Trained

Scored = metrics.Scores | metrics.Scalar | Trained


def scores_data(scores: Scored | None) -> dict[str, Any]:
    """Plain data; NaN and Inf become None."""
    assert isinstance(scores, metrics.Scores | metrics.Scalar)
    data = {f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)}
    if isinstance(scores, metrics.Scores):
        return {"scores": {**data, "values": _finite(scores.values.tolist())}}
    return {"scalar": {**data, "value": _finite([scores.value])[0]}}


def scores_from(data: dict[str, Any]) -> metrics.Scores | metrics.Scalar:
    """The scores again; what was not finite is NaN."""
    if "scalar" in data:
        value = data["scalar"]["value"]
        return metrics.Scalar(**{**data["scalar"], "value": np.nan if value is None else value})
    values = np.array(data["scores"]["values"], dtype=float)
    return metrics.Scores(**{**data["scores"], "values": values})


def scores_digest(scores: Scored | None) -> str:
    """Differs where the scores do."""
    return hashlib.sha256(repr(scores_data(scores)).encode()).hexdigest()[:16]


def _finite(values: list[float]) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values]
