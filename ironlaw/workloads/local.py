"""A workload's model as the parent runs it, to look before anything is measured: arrays in, arrays out.

One shape for a live torch module, a ``torch.export`` program and an ONNX file, so that validation and
snapshot are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.records import UserError
from ironlaw.workloads.rebuild import Rebuild

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Local:
    """A model that ran once on its example.

    ``call`` maps arrays in the order of ``rebuild.names`` to arrays in the order of ``output_names``. ``model``
    is the positional torch module, the bytes of an exported program, or the ONNX ModelProto; ``inputs`` and
    ``outputs`` are the example and what the model gives for it.
    """

    form: str
    model: Any
    rebuild: Rebuild
    output_names: tuple[str, ...]
    call: Callable[[Sequence[Array]], list[Array]]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    parameters: int
    weights_bytes: int


def check_finite_example(names: Sequence[str], arrays: Sequence[Array], given: str = "example") -> None:
    """Raises UserError when an input holds NaN or Inf, or nothing at all."""
    for name, array in zip(names, arrays, strict=True):
        if not array.size:
            raise UserError(f"{given} {name!r}", f"is empty: shape {array.shape}", "Give at least one example.")
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise UserError(f"{given} {name!r}", "holds NaN or Inf", "Give real data.")


def check_numbers_out(names: Sequence[str], outputs: Sequence[Array]) -> None:
    """Raises UserError when the model as it is gives NaN on its example (Inf may be meant, as in masks)."""
    for name, array in zip(names, outputs, strict=True):
        if array.dtype.kind in "fc" and np.isnan(array).any():
            raise UserError(f"model output {name!r}", "holds NaN on the example", "Mend the model, or its example.")


def check_finite_weights(name: str, values: Array, *, mask_allowed: bool) -> None:
    """Raises UserError when weights hold NaN or Inf.

    With ``mask_allowed`` a tensor of nothing but 0 and -Inf passes: attention masks are stored like that.
    """
    bad = ~np.isfinite(values)
    if not bad.any() or (mask_allowed and (np.isneginf(values) | (values == 0)).all()):
        return
    raise UserError(
        f"weights {name!r}", f"hold NaN or Inf ({int(bad.sum())} of {values.size})", "Train or load the model again."
    )
