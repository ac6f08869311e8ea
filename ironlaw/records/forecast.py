"""A prediction with what came of it: what the score is kept from, and what predictions are widened by."""

from __future__ import annotations

import math
from dataclasses import dataclass

PREDICTIONS_SCHEMA = "ironlaw.predictions/1"
NARROWEST = math.log(1.02)
"""An end of an interval counts as at least so far from its value, on a log scale."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """A lever's predicted gain (90 %) and the measured one, both above 1 when better.

    ``workload`` is equal for outcomes of one workload and says nothing else. ``widened`` is the power by which the
    lever's own interval had been widened when it was shown.
    """

    lever: str
    version: int
    kind: str
    target: str
    low: float
    value: float
    high: float
    widened: float
    measured: float
    workload: str

    @property
    def error(self) -> float:
        """ln(predicted / measured): above 0 where too much was promised."""
        return math.log(self.value / self.measured)

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def reach(self) -> float:
        """How much wider, as a power, the lever's own interval had to be to hold what was measured."""
        end = self.high if self.measured > self.value else self.low
        return self.widened * abs(self.error) / max(NARROWEST, abs(math.log(end / self.value)))
