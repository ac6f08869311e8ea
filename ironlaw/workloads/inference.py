"""What a person says of a model that they serve: the model, an example, and what good means.

A plain record without behaviour: it holds the user's live objects, so it never crosses a process; what
does is the :class:`~ironlaw.records.Snapshot` that :mod:`ironlaw.workloads.snapshot` takes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Inference:
    """A model to serve.

    ``model``: a ``torch.nn.Module``, or the path of an ``.onnx`` or ``torch.export`` ``.pt2`` file.
    ``example``: what one call takes: a tensor, a tuple of tensors, or a mapping of keyword tensors; axis 0
    of each is the batch, and its size is the batch that is served.
    ``evaluate(predict)``: a float, one score an example (1-D), or :class:`ironlaw.metrics.Scores`; ``predict``
    is called as the model is. Without it quality is the cosine between the outputs and the baseline's.
    ``calibrate``: an iterable of such inputs, from which quantisation takes its ranges.
    ``metric`` names the score and ``higher_is_better`` orients it (ready metrics know both).
    """

    model: Any
    example: Any
    _: KW_ONLY
    evaluate: Callable[[Callable[..., Any]], Any] | None = None
    calibrate: Iterable[Any] | None = None
    metric: str | None = None
    higher_is_better: bool = True
    name: str = ""
