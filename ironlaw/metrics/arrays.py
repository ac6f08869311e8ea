"""Whatever models take and return, as numpy arrays; inputs cut into batches along axis 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.records import UserError

Array = NDArray[Any]


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


def call_form(inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


def cut(inputs: Any, batch_size: int) -> tuple[Any, ...]:
    whole = call_form(inputs)
    count = length(whole)
    if batch_size < 1 or not count:
        raise UserError("metric inputs", f"{count} examples in batches of {batch_size}", "Give at least one of each.")
    if isinstance(whole, dict):
        return tuple({k: v[i : i + batch_size] for k, v in whole.items()} for i in range(0, count, batch_size))
    return tuple(tuple(v[i : i + batch_size] for v in whole) for i in range(0, count, batch_size))


def length(inputs: Any) -> int:
    values = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
    lengths = {int(v.shape[0]) for v in values}
    if len(lengths) != 1:
        raise UserError(
            "metric inputs", f"have {sorted(lengths)} examples along axis 0", "Give inputs of equal length."
        )
    return lengths.pop()
