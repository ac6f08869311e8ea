"""A metric that is missing or NaN: on the candidate a failure, on the baseline the user's mistake."""

from __future__ import annotations

import math

from ironlaw.metrics import Scalar, Scores
from ironlaw.records import Quality, UserError


def check_baseline(baseline: Scores | Scalar) -> None:
    if not math.isfinite(baseline.value):
        raise UserError(f"metric {baseline.metric!r}", "is NaN or Inf on the baseline", "Check evaluate and its data.")


def failed(metric: str, baseline: Scores | Scalar, reason: str) -> Quality:
    return Quality(
        metric=metric,
        value=None,
        baseline=baseline.value,
        drop=None,
        low=None,
        high=None,
        examples=None,
        provable=None,
        within=False,
        reason=reason,
    )
