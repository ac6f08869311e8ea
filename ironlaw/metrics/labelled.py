"""Metrics against labels: accuracy, error of a regression, perplexity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.metrics.arrays import Array, as_array, call_form, cut, length
from ironlaw.metrics.ready import Ready
from ironlaw.records import UserError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Labelled(Ready):
    labels: tuple[Array, ...]
    rule: Callable[[Array, Array], Array]

    def of_batch(self, outputs: list[Array], index: int, reference: list[list[Array]] | None) -> Array:
        return self.rule(outputs[0], self.labels[index])


def top1(inputs: Any, labels: Any, batch_size: int = 64) -> Ready:
    """Top-1 accuracy: 1 for an example whose arg-max over the last axis is its label, else 0.

    ``inputs``: a tensor or array (examples, ...), a tuple or a mapping of such. ``labels``: (examples,) integers.
    The model's first output is (examples, classes), or (examples,) of class numbers.
    """
    return _labelled(inputs, labels, batch_size, _right, "top1")


def regression_error(inputs: Any, targets: Any, batch_size: int = 64) -> Ready:
    """Root of the mean squared error; an example's score is the mean of its squared errors. Lower is better."""
    return _labelled(inputs, targets, batch_size, _squared_error, "rmse", higher_is_better=False, aggregate="rmse")


def perplexity(token_batches: Sequence[Any], labels: Sequence[Any]) -> Ready:
    """exp of the mean negative log-likelihood a token, in nats. Lower is better.

    ``token_batches``: inputs a batch. ``labels``: for each batch (sequences, positions) token numbers of what
    comes *next* (the caller shifts them); negative labels are ignored. The model's first output is
    (sequences, positions, vocabulary) logits. The score of an example is the mean over its own labelled
    tokens, so sequences weigh the same whatever their padding.
    """
    return _Labelled(
        batches=tuple(call_form(batch) for batch in token_batches),
        labels=tuple(as_array(block) for block in labels),
        rule=_negative_log_likelihood,
        metric="perplexity",
        higher_is_better=False,
        aggregate="exp_mean",
    )


def _labelled(
    inputs: Any,
    labels: Any,
    batch_size: int,
    rule: Callable[[Array, Array], Array],
    metric: str,
    higher_is_better: bool = True,
    aggregate: str = "mean",
) -> Ready:
    blocks, truth = cut(inputs, batch_size), as_array(labels)
    count = sum(length(block) for block in blocks)
    if len(truth) != count:
        raise UserError(
            f"metric {metric!r}", f"{count} examples but {len(truth)} labels", "Give one label for each example."
        )
    return _Labelled(
        batches=blocks,
        labels=tuple(truth[i : i + batch_size] for i in range(0, count, batch_size)),
        rule=rule,
        metric=metric,
        higher_is_better=higher_is_better,
        aggregate=aggregate,
    )


def _right(outputs: Array, labels: Array) -> Array:
    guesses = outputs.argmax(-1) if outputs.ndim > labels.ndim else outputs
    return np.asarray(guesses == labels, dtype=np.float64)


def _squared_error(outputs: Array, targets: Array) -> Array:
    error = (outputs.reshape(len(targets), -1).astype(np.float64) - targets.reshape(len(targets), -1)) ** 2
    return np.asarray(error.mean(1))


def _negative_log_likelihood(logits: Array, labels: Array) -> Array:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(-1))
    picked = np.take_along_axis(shifted, np.maximum(labels, 0)[..., None], -1)[..., 0]
    known = labels >= 0
    return np.asarray(((log_total - picked) * known).sum(-1) / np.maximum(known.sum(-1), 1))
