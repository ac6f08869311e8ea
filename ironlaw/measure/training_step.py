"""One training step in its parts, and the same step on tensors that hold no data.

Why the step is taken apart here and not in the user's loop: the ledger and the memory need to know which of
forward, backward and optimiser an operator belongs to, and a loop of the user's hides that. The model is lent:
its tensors are swapped for fakes while a step is counted, and it comes back as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """Where in a step an operator runs. Set-up is everything before the first step, and zeroing gradients."""

    SETUP = "set-up"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMISER = "optimiser"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One training step of eager torch code, as it would be run on the CPU.

    ``loss(model, *batch)`` gives the scalar to differentiate (autocast and checkpointing go in there);
    ``optimiser(parameters)`` makes the optimiser. The model is run in the mode (training or not) that it is in, and
    model and batch may be on the meta device. Gradients are set to None before the forward, or with
    ``gradients_kept`` between forward and backward, so that those of the step before are there in the forward.

    >>> Step(
    ...     model=net,
    ...     batch=(images, labels),
    ...     loss=lambda net, x, y: cross_entropy(net(x), y),
    ...     optimiser=torch.optim.AdamW,
    ... )
    """

    model: Any
    batch: tuple[Any, ...]
    loss: Callable[..., Any]
    optimiser: Callable[[Any], Any]
    gradients_kept: bool = False

    @property
    def examples(self) -> int:
        """Length of axis 0 of the first tensor of the batch; 1 where there is none."""
        return next((int(one.shape[0]) for one in self.batch if getattr(one, "ndim", 0)), 1)


def run(step: Step, optimiser: Any, enter: Callable[[Phase], None] = lambda phase: None) -> None:
    """One step; ``enter`` is called as each phase begins, and with set-up at the end."""
    enter(Phase.SETUP)
    if not step.gradients_kept:
        optimiser.zero_grad(set_to_none=True)
    enter(Phase.FORWARD)
    loss = step.loss(step.model, *step.batch)
    if step.gradients_kept:
        enter(Phase.SETUP)
        optimiser.zero_grad(set_to_none=True)
    enter(Phase.BACKWARD)
    loss.backward()
    del loss
    enter(Phase.OPTIMISER)
    optimiser.step()
    enter(Phase.SETUP)


@contextmanager
def on_fakes(step: Step) -> Iterator[Step]:
    """The same step on fake CPU tensors: nothing is allocated or computed within the block.

    Raises what torch raises where the values of a tensor decide the control flow, or an operator has no fake form.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        shadow = _Shadows(mode)
        with _swapped(step.model, shadow):
            yield dataclasses.replace(step, batch=tuple(shadow(one) for one in step.batch))


class _Shadows:
    """The fake of each tensor, one for one, so that tied weights stay tied."""

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        self._made: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        import torch

        if isinstance(value, list | tuple):
            return type(value)(self(one) for one in value)
        if isinstance(value, dict):
            return {name: self(one) for name, one in value.items()}
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._made:
            self._made[id(value)] = (value, self._fake(value))
        return self._made[id(value)][1]

    def _fake(self, tensor: Any) -> Any:
        import torch

        if tensor.device.type != "meta":
            return self._mode.from_tensor(tensor)
        empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
        return empty.requires_grad_(tensor.requires_grad)


@contextmanager
def _swapped(model: Any, shadow: _Shadows) -> Iterator[None]:
    kept = [
        (table, name, tensor)
        for part in model.modules()
        for table in (part._parameters, part._buffers)
        for name, tensor in table.items()
        if tensor is not None
    ]
    try:
        for table, name, tensor in kept:
            table[name] = shadow(tensor)
        _refresh_recurrent(model)
        yield
    finally:
        for table, name, tensor in kept:
            table[name] = tensor
        _refresh_recurrent(model)


def _refresh_recurrent(model: Any) -> None:
    """Recurrent layers of torch keep their weights in a list of their own, too."""
    for part in model.modules():
        if hasattr(part, "_flat_weights_names"):
            part._flat_weights = [getattr(part, name, None) for name in part._flat_weights_names]
