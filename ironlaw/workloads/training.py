"""What a person says of a job that trains: the model, where batches come from, the loss, the optimiser.

A plain record, as :class:`~ironlaw.workloads.inference.Inference` is. Loader and loss are the user's own code, so they
cannot be snapshotted as arrays: what crosses to a fresh process is a pickle by value (:mod:`ironlaw.workloads.parcel`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """A job that trains.

    ``model``: a ``torch.nn.Module``, on the device on which it trains.
    ``data``: a ``torch.utils.data.DataLoader``, or a function without arguments that returns any iterable of batches.
    ``loss``: ``loss(model, batch)`` when its first parameter is called ``model``, else ``loss(outputs, targets)`` for
    batches ``(x, y)``; gives a scalar tensor.
    ``optimiser``: a function from ``model.parameters()`` to a ``torch.optim.Optimizer``.
    ``evaluate(model)``: what the trained model is worth, a number (or one an example); ``metric`` names it. Only what
    changes the arithmetic or the batches is judged by it: diagnosis, and levers that compute the same, do without.
    ``steps`` of the whole job; ``precision`` is ``fp32``, or ``bf16`` for autocast around the forward pass.
    """

    model: Any
    data: Any
    loss: Callable[..., Any]
    optimiser: Callable[..., Any]
    _: KW_ONLY
    evaluate: Callable[[Any], Any] | None = None
    metric: str | None = None
    higher_is_better: bool = True
    steps: int = 1000
    precision: str = "fp32"
    name: str = ""
