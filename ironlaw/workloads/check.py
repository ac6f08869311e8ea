"""Looking before measuring: everything that would spoil a run is found in the parent, on the user's model.

``evaluate`` is called twice, through the same translation that workers will stand behind; an answer that
moves between two calls on one model would be blamed on whatever lever was tried first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.metrics import Ready, Scalar, Scores, cosine_fidelity_of, reference_of, score
from ironlaw.records import TensorSpec, UserError
from ironlaw.workloads.batching import in_batches
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.local import Local, check_finite_example
from ironlaw.workloads.source import blamed

Array = NDArray[Any]

MAX_BATCHES = 256
"""How many calibration batches are kept: more add time to a calibration, not precision to its ranges."""

TRIED = 32
"""Examples of a ready metric that are tried before a run: its code is ours, so only the model can be at fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    """How the batch axis behaves: its size, whether it may change, which inputs and outputs follow it."""

    batch: int
    dynamic: bool
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def axes_of(local: Local) -> Axes:
    """Tries a batch of one more: it may vary when that runs, outputs follow and rows stay what they were."""
    first = local.inputs[0]
    batch = int(first.shape[0]) if first.ndim else 1
    follows = [a.ndim > 0 and a.shape[0] == batch and bool(first.ndim) for a in local.inputs]
    wider = [np.concatenate([a, a[:1]]) if follow else a for a, follow in zip(local.inputs, follows, strict=True)]
    found = _try(local, wider) if any(follows) else None
    grown = [
        o.ndim > 0 and w.shape == (batch + 1, *o.shape[1:]) if found else o.ndim > 0 and o.shape[0] == batch
        for o, w in zip(local.outputs, found or local.outputs, strict=True)
    ]
    same = found is not None and all(
        _close(w[:batch], o) for o, w, g in zip(local.outputs, found, grown, strict=True) if g
    )
    names = (*local.rebuild.names,)
    return Axes(
        batch=batch,
        dynamic=found is not None and all(grown) and same,
        inputs=tuple(_spec(n, a, f) for n, a, f in zip(names, local.inputs, follows, strict=True)),
        outputs=tuple(_spec(n, a, g) for n, a, g in zip(local.output_names, local.outputs, grown, strict=True)),
    )


def calibration_of(inference: Inference, local: Local, axes: Axes) -> list[list[Array]]:
    """The calibration batches as arrays, at most :data:`MAX_BATCHES`; a fixed batch is cut to its size.

    Raises UserError when the iterable raises, is empty, or a batch has the wrong number, shape or kind of
    inputs, or holds NaN.
    """
    if inference.calibrate is None:
        return []
    try:
        given = list(islice(iter(inference.calibrate), MAX_BATCHES))
    except UserError:
        raise
    except Exception as error:
        raise blamed(error, "calibrate", "raises while it is read") from error
    if not given:
        raise UserError("calibrate", "gives no batches", "Give at least one batch of inputs, or leave it out.")
    batches = [_batch(item, index, local, axes) for index, item in enumerate(given)]
    _try_shapes(batches, local)
    if axes.dynamic:
        return batches
    return [part for arrays in batches for part in _cut(arrays, axes)]


def predict_of(local: Local, axes: Axes) -> Callable[..., Any]:
    """The model in the parent as ``evaluate`` will see it behind any runtime."""

    def predict(*args: Any, **kwargs: Any) -> Any:
        arrays = local.rebuild.inputs_to_arrays(args, kwargs)
        if axes.dynamic:
            found = local.call(arrays)
        else:
            found = in_batches(local.call, arrays, axes.inputs, axes.outputs, axes.batch)
        return local.rebuild.outputs_from_arrays(found, [*args, *kwargs.values()])

    return predict


def evaluator_over(inference: Inference, batches: Sequence[Sequence[Array]]) -> Callable[..., Any]:
    """The user's ``evaluate``, or fidelity to the baseline over ``batches``."""
    return inference.evaluate or cosine_fidelity_of([tuple(arrays) for arrays in batches])


def check_evaluate(inference: Inference, evaluate: Callable[..., Any], predict: Callable[..., Any]) -> Scores | Scalar:
    """What ``evaluate`` says of the user's model; of a ready metric, on its first :data:`TRIED` examples.

    Raises UserError when it raises, returns NaN or Inf, or says something else the second time.
    """
    evaluate = evaluate.head(TRIED) if isinstance(evaluate, Ready) else evaluate
    reference = _reference(evaluate, predict)
    first, second = (_ask(inference, evaluate, predict, reference) for _ in range(2))
    for answer in (first, second):
        values = answer.values if isinstance(answer, Scores) else np.array([answer.value])
        if not np.isfinite(values).all():
            raise UserError("evaluate", "returns NaN or Inf on the model as it is", "Check its data and its formula.")
    if not _same(first, second):
        raise UserError(
            "evaluate",
            f"differs between two calls on the same model ({_words(first)}, then {_words(second)})",
            "Fix its random seed, use the same examples each time, and do not consume a generator.",
        )
    return first


def _reference(evaluate: Callable[..., Any], predict: Callable[..., Any]) -> list[list[Array]] | None:
    try:
        return reference_of(evaluate, predict)
    except UserError:
        raise
    except Exception as error:
        raise blamed(error, "evaluate", "raises") from error


def _ask(
    inference: Inference,
    evaluate: Callable[..., Any],
    predict: Callable[..., Any],
    reference: list[list[Array]] | None,
) -> Scores | Scalar:
    try:
        return score(
            evaluate,
            predict,
            metric=inference.metric,
            higher_is_better=inference.higher_is_better,
            reference=reference,
        )
    except UserError:
        raise
    except Exception as error:
        raise blamed(error, "evaluate", "raises") from error


def _same(first: Scores | Scalar, second: Scores | Scalar) -> bool:
    if isinstance(first, Scores) and isinstance(second, Scores):
        return first.values.shape == second.values.shape and np.allclose(
            first.values, second.values, rtol=1e-4, atol=1e-6
        )
    if isinstance(first, Scalar) and isinstance(second, Scalar):
        return bool(np.isclose(first.value, second.value, rtol=1e-4, atol=1e-9))
    return False


def _words(answer: Scores | Scalar) -> str:
    return (
        f"{answer.value:.6g} on {len(answer.values)} examples" if isinstance(answer, Scores) else f"{answer.value:.6g}"
    )


def _try(local: Local, arrays: list[Array]) -> list[Array] | None:
    """The outputs, or None when the model refuses this batch."""
    try:
        return local.call(arrays)
    except Exception:  # noqa: BLE001  whatever a stranger's code raises here is the answer: this batch is refused
        return None


def _close(one: Array, other: Array) -> bool:
    scale = float(np.abs(other, dtype=np.float64).max(initial=0.0)) if other.dtype.kind in "fc" else 0.0
    return bool(np.allclose(one, other, rtol=1e-3, atol=1e-3 * scale, equal_nan=True))


def _spec(name: str, array: Array, batched: bool) -> TensorSpec:
    return TensorSpec(name=name, shape=array.shape, dtype=array.dtype.name, batched=batched)


def _batch(item: Any, index: int, local: Local, axes: Axes) -> list[Array]:
    given = f"calibrate batch {index}"
    try:
        args = item if isinstance(item, tuple | list) else (item,)
        arrays = local.rebuild.inputs_to_arrays(args)
    except UserError as error:
        raise UserError(
            given, f"{error.given} {error.wrong}", "Give inputs only, as the example has them (no labels)."
        ) from error
    check_finite_example(local.rebuild.names, arrays, given)
    for array, spec in zip(arrays, axes.inputs, strict=True):
        if array.ndim != len(spec.shape) or (not spec.batched and array.shape != spec.shape):
            raise UserError(
                given, f"{spec.name} has shape {array.shape}, the example {spec.shape}", "Shape it like the example."
            )
    return arrays


def _try_shapes(batches: list[list[Array]], local: Local) -> None:
    """Runs the model once for each shape of an example that it was not shown yet (other sequence lengths, say)."""
    tried = {tuple(a.shape[1:] for a in local.inputs)}
    for index, arrays in enumerate(batches):
        shapes = tuple(a.shape[1:] for a in arrays)
        if shapes not in tried:
            tried.add(shapes)
            try:
                local.call(arrays)
            except Exception as error:
                words = ", ".join(f"{n} {a.shape}" for n, a in zip(local.rebuild.names, arrays, strict=True))
                raise blamed(error, f"calibrate batch {index}", f"the model raises on it ({words})") from error


def _cut(arrays: list[Array], axes: Axes) -> list[list[Array]]:
    """Pieces of exactly the fixed batch; a last one that is short is dropped unless it is the only one."""
    lengths = {a.shape[0] for a, s in zip(arrays, axes.inputs, strict=True) if s.batched}
    length = lengths.pop() if len(lengths) == 1 else 0
    if length < axes.batch and any(s.batched for s in axes.inputs):
        raise UserError(
            "calibrate", f"has a batch of {length}, the model takes exactly {axes.batch}", "Give batches of that size."
        )
    starts = range(0, max(length, 1) - axes.batch + 1, axes.batch) if length else range(1)
    return [
        [a[i : i + axes.batch] if s.batched else a for a, s in zip(arrays, axes.inputs, strict=True)] for i in starts
    ]
