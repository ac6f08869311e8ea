"""Ready metrics for ``evaluate``, and the per-example scores that make quality tests paired.

A single number says little about a small drop: the judge (:mod:`ironlaw.verify.quality`) pairs the scores
of baseline and candidate example by example. So every ready metric returns :class:`Scores`; a plain function
may return a 1-D array (one score an example, aggregated by the mean) or one float (then the judge can only
bound the drop by the disagreements that it saw). Two kinds exist: *labelled* metrics compare with the
labels, *fidelity* metrics with the baseline's own outputs, which the judge records once
(:func:`reference_of`) and passes back (:func:`score`). Refused: NaN scores, scores of another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.records import UserError

Predict = Callable[..., Any]
Array = NDArray[Any]
Stop = Callable[["Scores"], bool]

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


# ---------------------------------------------------------------- asking an evaluate


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


# ---------------------------------------------------------------- ready metrics


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
            held, count = held + _length(batch), count + 1
        return replace(self, batches=self.batches[:count])

    def reference(self, predict: Predict) -> list[list[Array]]:
        """The outputs that fidelity is measured against, a list a batch."""
        return [_ask(predict, batch) for batch in self.batches]

    def scores(self, predict: Predict, reference: list[list[Array]] | None = None, stop: Stop | None = None) -> Scores:
        """Scores of ``predict``; without a ``reference`` fidelity is to itself (what a baseline scores)."""
        if self.fidelity and reference is None:
            reference = self.reference(predict)
        parts: list[Array] = []
        for index, batch in enumerate(self.batches):
            parts.append(self.of_batch(_ask(predict, batch), index, reference))
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Labelled(Ready):
    labels: tuple[Array, ...]
    rule: Callable[[Array, Array], Array]

    def of_batch(self, outputs: list[Array], index: int, reference: list[list[Array]] | None) -> Array:
        return self.rule(outputs[0], self.labels[index])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Fidelity(Ready):
    rule: Callable[[Array, Array, float], Array]

    def of_batch(self, outputs: list[Array], index: int, reference: list[list[Array]] | None) -> Array:
        assert reference is not None, "fidelity needs the baseline's outputs"
        return self.rule(_rows(outputs), _rows(reference[index]), _mean_energy(reference))


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
        batches=tuple(_call_form(batch) for batch in token_batches),
        labels=tuple(as_array(block) for block in labels),
        rule=_negative_log_likelihood,
        metric="perplexity",
        higher_is_better=False,
        aggregate="exp_mean",
    )


def cosine_fidelity(inputs: Any, batch_size: int = 64) -> Ready:
    """Cosine between an example's outputs (all of them, flattened) and the baseline's: 1 is the same."""
    return cosine_fidelity_of(_cut(inputs, batch_size))


def cosine_fidelity_of(batches: Sequence[Any]) -> Ready:
    """:func:`cosine_fidelity` on batches that are cut already (their shapes may differ)."""
    return _Fidelity(
        batches=tuple(_call_form(b) for b in batches), rule=_cosine, metric="cosine_fidelity", fidelity=True
    )


def sqnr_db(inputs: Any, batch_size: int = 64) -> Ready:
    """Signal to quantisation noise of the outputs against the baseline's, in dB, pooled over examples.

    10·log10(Σ‖r‖² / Σ‖y − r‖²), with r the baseline's outputs. The score of an example is its noise energy
    over the mean signal energy, so that the mean of the scores is the noise-to-signal ratio; a budget in points
    is one on that ratio (1pt is 20 dB), a floor is in dB.
    """
    return _Fidelity(
        batches=_cut(inputs, batch_size), rule=_noise, metric="sqnr_db", aggregate="sqnr_db", fidelity=True
    )


# ---------------------------------------------------------------- rules of one batch


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


def _cosine(rows: Array, reference: Array, energy: float) -> Array:
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(reference, axis=1)
    same = (rows == reference).all(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.where(norms == 0, 0.0, (rows * reference).sum(1) / norms)
    return np.where(same, 1.0, cosine)


def _noise(rows: Array, reference: Array, energy: float) -> Array:
    noise = ((rows - reference) ** 2).sum(1)
    return np.where(noise == 0, 0.0, noise / energy) if energy > 0 else np.where(noise == 0, 0.0, np.inf)


def _mean_energy(reference: list[list[Array]]) -> float:
    rows = [_rows(outputs) for outputs in reference]
    return float(sum((r**2).sum() for r in rows) / sum(len(r) for r in rows))


def _rows(outputs: list[Array]) -> Array:
    """All outputs of a batch as (examples, numbers); outputs that do not follow the batch make one example."""
    lengths = {o.shape[0] if o.ndim else 0 for o in outputs}
    examples = lengths.pop() if len(lengths) == 1 else 1
    return np.concatenate([o.reshape(examples or 1, -1).astype(np.float64) for o in outputs], axis=1)


# ---------------------------------------------------------------- inputs and outputs


def as_array(value: Any) -> Array:
    """A tensor, array, list or number as an array; bfloat16 and half become float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) in ("torch.bfloat16", "torch.float16") else value
    return np.asarray(value)


def leaves(outputs: Any) -> list[Array]:
    """The arrays of whatever a model returns, in order; what is not an array is left out."""
    if isinstance(outputs, Mapping):
        return [array for value in outputs.values() for array in leaves(value)]
    if isinstance(outputs, tuple | list):
        return [array for value in outputs for array in leaves(value)]
    return [as_array(outputs)] if hasattr(outputs, "shape") else []


def _ask(predict: Predict, batch: Any) -> list[Array]:
    outputs = predict(**batch) if isinstance(batch, Mapping) else predict(*batch)
    found = leaves(outputs)
    if not found:
        raise UserError(
            "predict", f"gave {type(outputs).__name__}, in which there is no tensor", "Return tensors from the model."
        )
    return found


def _labelled(
    inputs: Any,
    labels: Any,
    batch_size: int,
    rule: Callable[[Array, Array], Array],
    metric: str,
    higher_is_better: bool = True,
    aggregate: str = "mean",
) -> Ready:
    blocks, truth = _cut(inputs, batch_size), as_array(labels)
    count = sum(_length(block) for block in blocks)
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


def _call_form(inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


def _cut(inputs: Any, batch_size: int) -> tuple[Any, ...]:
    whole = _call_form(inputs)
    count = _length(whole)
    if batch_size < 1 or not count:
        raise UserError("metric inputs", f"{count} examples in batches of {batch_size}", "Give at least one of each.")
    if isinstance(whole, dict):
        return tuple({k: v[i : i + batch_size] for k, v in whole.items()} for i in range(0, count, batch_size))
    return tuple(tuple(v[i : i + batch_size] for v in whole) for i in range(0, count, batch_size))


def _length(inputs: Any) -> int:
    values = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
    lengths = {int(v.shape[0]) for v in values}
    if len(lengths) != 1:
        raise UserError(
            "metric inputs", f"have {sorted(lengths)} examples along axis 0", "Give inputs of equal length."
        )
    return lengths.pop()
