"""A ready metric walks its examples in batches, so that an evaluation ends when the answer is certain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ironlaw.metrics.arrays import Array, leaves, length
from ironlaw.metrics.scores import Scores
from ironlaw.records import UserError

Predict = Callable[..., Any]
Stop = Callable[[Scores], bool]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ready:
    """A metric that walks its examples in batches, so that it can stop early.

    ``batches`` are inputs as ``predict`` takes them: a tuple is spread, a mapping given by keyword.
    Subclasses give :meth:`of_batch`.
    """

    batches: tuple[Any, ...]
    metric: str
    higher_is_better: bool = True
    aggregate: str = "mean"
    fidelity: bool = False

    def of_batch(self, outputs: list[Array], index: int, reference: list[list[Array]] | None) -> Array:
        """Scores of one batch: (examples,)."""
        raise AssertionError("a ready metric must say how a batch is scored")

    def head(self, examples: int) -> Ready:
        """The same metric over the first batches that hold at least ``examples``."""
        count = held = 0
        for batch in self.batches:
            if held >= examples:
                break
            held, count = held + length(batch), count + 1
        return replace(self, batches=self.batches[:count])

    def reference(self, predict: Predict) -> list[list[Array]]:
        """The outputs that fidelity is measured against, a list a batch."""
        return [ask(predict, batch) for batch in self.batches]

    def scores(self, predict: Predict, reference: list[list[Array]] | None = None, stop: Stop | None = None) -> Scores:
        """Scores of ``predict``; without a ``reference`` fidelity is to itself (what a baseline scores)."""
        if self.fidelity and reference is None:
            reference = self.reference(predict)
        parts: list[Array] = []
        for index, batch in enumerate(self.batches):
            parts.append(self.of_batch(ask(predict, batch), index, reference))
            if stop is not None and index + 1 < len(self.batches) and stop(self._scores(parts)):
                break
        return self._scores(parts)

    def __call__(self, predict: Predict) -> Scores:
        return self.scores(predict)

    def _scores(self, parts: list[Array]) -> Scores:
        return Scores(
            values=np.concatenate(parts),
            metric=self.metric,
            higher_is_better=self.higher_is_better,
            aggregate=self.aggregate,
            fidelity=self.fidelity,
        )


def ask(predict: Predict, batch: Any) -> list[Array]:
    outputs = predict(**batch) if isinstance(batch, Mapping) else predict(*batch)
    found = leaves(outputs)
    if not found:
        raise UserError(
            "predict", f"gave {type(outputs).__name__}, in which there is no tensor", "Return tensors from the model."
        )
    return found
