"""What a metric answers: a score an example (:class:`Scores`), or one number (:class:`Scalar`).

How scores become the number that people quote is a name in a table, so that the judge can resample them without knowing
the metric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ironlaw.metrics.arrays import Array
from ironlaw.records import UserError

SQNR_LIMIT_DB = 150.0
"""What float32 can resolve (24 bits of mantissa, 6.02 dB a bit, plus rounding): more is shown as this."""

AGGREGATES: dict[str, Callable[[Array], Array]] = {
    "mean": lambda mean: mean,
    "rmse": np.sqrt,
    "exp_mean": np.exp,
    "sqnr_db": lambda mean: -10.0 * np.log10(np.maximum(mean, 10.0 ** (-SQNR_LIMIT_DB / 10.0))),
}
"""From the mean of the per-example scores to the number that people quote."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """One score an example, and how they become the metric.

    ``values`` is (examples,) float64. ``aggregate`` is a key of :data:`AGGREGATES`: ``mean`` of the scores,
    ``rmse`` of squared errors, ``exp_mean`` of negative log-likelihoods (perplexity), ``sqnr_db`` of noise
    energies over the mean signal energy. ``higher_is_better`` speaks of the aggregated number. ``fidelity``
    says that the scores compare with the baseline's own outputs.
    """

    values: Array
    metric: str
    higher_is_better: bool = True
    aggregate: str = "mean"
    fidelity: bool = False

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim != 1 or not len(values):
            raise UserError(
                f"metric {self.metric!r}",
                f"scores have shape {values.shape}, wanted one score an example: (examples,)",
                "Return a 1-D array with one number for each example, or one float.",
            )
        if self.aggregate not in AGGREGATES:
            raise UserError(f"aggregate {self.aggregate!r}", "is not known", f"Use one of: {', '.join(AGGREGATES)}.")
        object.__setattr__(self, "values", values)

    @property
    def value(self) -> float:
        """The metric: the aggregated scores."""
        return float(self.of_means(self.values.mean()))

    def of_means(self, means: Array | float) -> Array:
        """The metric for means of resampled scores."""
        return AGGREGATES[self.aggregate](np.asarray(means, dtype=np.float64))

    @property
    def oriented(self) -> float:
        """+1 where a greater aggregate is better, else -1."""
        return 1.0 if self.higher_is_better else -1.0

    @property
    def binary(self) -> bool:
        """True when each score is 0 or 1 (right or wrong) and the metric is their mean."""
        return self.aggregate == "mean" and bool(np.isin(self.values, (0.0, 1.0)).all())

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.values).all())

    def first(self, count: int) -> Scores:
        """The scores of the first ``count`` examples."""
        return replace(self, values=self.values[:count])


@dataclass(frozen=True, kw_only=True, slots=True)
class Scalar:
    """The metric where ``evaluate`` gives one number only."""

    value: float
    metric: str
    higher_is_better: bool = True
