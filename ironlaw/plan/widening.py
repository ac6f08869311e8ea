"""Predictions that missed widen those to come: split conformal prediction over the outcomes in the store.

A lever's intervals are stretched around their value, as a power of the ratio, until nine tenths of its outcomes on
other workloads would have lain inside (Vovk, Gammerman, Shafer 2005; with n outcomes the ceil(0.9 (n + 1))-th smallest
stretch). They are never narrowed, and the value stays: an interval is a promise, a bias is a defect to be mended in
the lever. Outcomes of the workload itself are left out, since a search that reads its own results cannot be repeated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from ironlaw.records import Forecast, Interval, Prediction

COVERAGE = 0.9


class Widening:
    """What the outcomes say of each lever. ``workload`` is the one that is about to be predicted."""

    def __init__(self, forecasts: Iterable[Forecast] = (), workload: str = "") -> None:
        self._reach: dict[tuple[str, int, str], list[float]] = {}
        for forecast in forecasts:
            if forecast.workload not in ("", workload):
                key = (forecast.lever, forecast.version, forecast.kind)
                self._reach.setdefault(key, []).append(forecast.reach)

    def power(self, lever: str, version: int, kind: str) -> float:
        """By which the lever's intervals are stretched; 1 where they hold, or where too little is known."""
        reach = sorted(self._reach.get((lever, version, kind), ()))
        rank = math.ceil(COVERAGE * (len(reach) + 1))
        return max(1.0, reach[rank - 1]) if rank <= len(reach) else 1.0

    def __call__(self, predicted: Prediction, lever: str, version: int, kind: str) -> Prediction:
        power = self.power(lever, version, kind)
        if power == 1.0:
            return predicted
        one, seen = predicted.speedup, len(self._reach[lever, version, kind])
        wide = Interval(
            low=one.value * (one.low / one.value) ** power,
            value=one.value,
            high=one.value * (one.high / one.value) ** power,
        )
        basis = f"{predicted.basis}; widened {power:.2f} times by {seen} outcomes on other workloads"
        return dataclasses.replace(predicted, speedup=wide, basis=basis, widened=power)
