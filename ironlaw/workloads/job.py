"""A training job that is open in this process: batches without surprises, and the pieces of one step.

Every way in which data, loss and optimiser can be wrong is found in the first step and told as a UserError that names
the part and the user's line, whether it fails here or in a loader worker. Each piece of a step is finished when it
returns: a device that works on its own is waited for.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ironlaw.measure.training_step import Step
from ironlaw.records import UserError
from ironlaw.workloads.source import blamed
from ironlaw.workloads.training import Training

PRECISIONS = ("fp32", "bf16")
_BOTH = "loss(model, batch), first parameter called model, or loss(outputs, targets)"


def check_training(training: Training) -> None:
    """What can be seen without running anything. Raises UserError."""
    import torch

    if not isinstance(training.model, torch.nn.Module):
        _refuse("model", training.model, "is not a torch.nn.Module", "Give il.Training(model, data, loss, optimiser).")
    if not any(p.requires_grad for p in training.model.parameters()):
        _refuse("model", training.model, "has no parameter that requires a gradient", "There is nothing to train.")
    if isinstance(training.data, Iterator):
        remedy = "Give a function that makes it: data=lambda: batches()."
        _refuse("data", training.data, "can be read only once", remedy)
    if not callable(training.data) and not hasattr(training.data, "__iter__"):
        _refuse("data", training.data, "gives no batches", "Give a DataLoader, or a function that returns an iterable.")
    loss: Any = training.loss
    if not callable(loss):
        _refuse("loss", loss, "cannot be called", f"Give {_BOTH}.")
    optimiser: Any = training.optimiser
    if isinstance(optimiser, torch.optim.Optimizer) or not callable(optimiser):
        remedy = "Give a function: optimiser=lambda parameters: torch.optim.SGD(parameters, lr=0.1)."
        _refuse("optimiser", optimiser, "is no function of the parameters", remedy)
    if training.precision not in PRECISIONS:
        raise UserError(f"precision {training.precision!r}", "is not known", f"Use {' or '.join(PRECISIONS)}.")
    if training.steps < 1:
        raise UserError(f"steps={training.steps}", "is not a number of steps", "Give how many the job takes, from 1.")


def _refuse(part: str, value: Any, wrong: str, remedy: str) -> None:
    raise UserError(f"{part} ({type(value).__name__})", wrong, remedy)


class Job:
    """The pieces of a step in the order of use: a batch of :meth:`epoch`, copy, clear, forward, backward, update."""

    def __init__(self, training: Training) -> None:
        check_training(training)
        self.training, self.model = training, training.model.train()
        self.device = next(p for p in self.model.parameters() if p.requires_grad).device
        self._loss, self._taken_as = _loss_of(training.loss)
        self._factory = training.data if callable(training.data) else None
        self.source = self._opened()
        self._used_up = False
        self.optimiser = self._optimiser()
        self._wait: Callable[[], object] = _nothing if self.device.type == "cpu" else _synchronise(self.device)

    def epoch(self) -> Iterator[Any]:
        """The batches of one epoch. Raises UserError where the user's data raises, or has no batch."""
        if self._used_up:
            self.source = self._opened()
        self._used_up = isinstance(self.source, Iterator)
        empty = True
        for batch in _blaming(self.source):
            empty = False
            yield batch
        if empty:
            remedy = "Check its length, and drop_last with fewer samples than one batch."
            raise UserError("data", "gives no batches", remedy)

    def copy(self, batch: Any) -> Any:
        if self.device.type == "cpu":
            return batch
        moved = _moved(batch, self.device)
        self._wait()
        return moved

    def clear(self) -> None:
        self.optimiser.zero_grad()
        self._wait()

    def forward(self, batch: Any) -> Any:
        """The loss."""
        with self._precision():
            loss = self._loss(self.model, batch)
        self._wait()
        return loss

    def backward(self, loss: Any) -> None:
        loss.backward()
        self._wait()

    def update(self) -> None:
        self.optimiser.step()
        self._wait()

    def as_step(self, batch: Any) -> Step:
        """The same step for passes that count it, on fake tensors say."""

        def loss(model: Any, given: Any) -> Any:
            with self._precision():
                return self._loss(model, given)

        return Step(model=self.model, batch=(batch,), loss=loss, optimiser=self.training.optimiser)

    def first_step(self, batch: Any) -> float:
        """One checked step; returns the loss. Raises UserError for whatever is wrong with it."""
        moved = self.copy(batch)
        self.clear()
        try:
            loss = self.forward(moved)
        except UserError:
            raise
        except Exception as error:
            raise blamed(error, "loss", f"raises on the first batch, taken as {self._taken_as}") from error
        value = _checked(loss)
        try:
            self.backward(loss)
        except Exception as error:
            raise blamed(error, "loss", "cannot be differentiated") from error
        try:
            self.update()
        except Exception as error:
            raise blamed(error, "optimiser", "raises in its first step") from error
        return value

    def _opened(self) -> Any:
        if self._factory is None:
            return self.training.data
        try:
            found = self._factory()
        except UserError:
            raise
        except Exception as error:
            raise blamed(error, "data", "raises when it is opened") from error
        if not hasattr(found, "__iter__"):
            _refuse("data", found, "is what the function returned, and no iterable", "Return an iterable of batches.")
        return found

    def _optimiser(self) -> Any:
        import torch

        try:
            found = self.training.optimiser(self.model.parameters())
        except Exception as error:
            raise blamed(error, "optimiser", "raises on the model's parameters") from error
        if not isinstance(found, torch.optim.Optimizer):
            _refuse("optimiser", found, "is what the function returned, and no torch.optim.Optimizer", "Return one.")
        return found

    def _precision(self) -> Any:
        import torch

        if self.training.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def batch_size(batch: Any) -> int:
    """Samples in a batch: axis 0 of its first tensor; 1 where there is none."""
    if hasattr(batch, "shape"):
        return int(batch.shape[0]) if len(batch.shape) else 1
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return batch_size(next(iter(parts))) if parts else 1


def _checked(loss: Any) -> float:
    import torch

    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shape = f"of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
        raise UserError("loss", f"gives {shape}, wanted one number", f"Reduce it, as with .mean(); give {_BOTH}.")
    if not loss.requires_grad:
        raise UserError("loss", "does not depend on the parameters", "Give the tensor, not .item() or .detach() of it.")
    value = float(loss.detach())
    if not math.isfinite(value):
        remedy = "Look at the first batch, the model's weights and the loss."
        raise UserError("loss", f"is {value} in the first step", remedy)
    return value


def _loss_of(loss: Callable[..., Any]) -> tuple[Callable[[Any, Any], Any], str]:
    """The user's loss as a function of model and batch, and how it is called."""
    try:
        first = next(iter(inspect.signature(loss).parameters), "")
    except (TypeError, ValueError):
        first = ""
    if first.startswith("model"):
        return loss, "loss(model, batch)"

    def on_pairs(model: Any, batch: Any) -> Any:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            given = f"loss on batches of type {type(batch).__name__}"
            raise UserError(given, "wants pairs (x, y)", f"Return pairs, or give {_BOTH}.")
        inputs, targets = batch
        if isinstance(inputs, Mapping):
            return loss(model(**inputs), targets)
        return loss(model(*inputs) if isinstance(inputs, list | tuple) else model(inputs), targets)

    return on_pairs, "loss(outputs, targets)"


def _moved(batch: Any, device: Any) -> Any:
    """The batch with all its tensors on ``device``."""
    if hasattr(batch, "to"):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_moved(value, device) for value in batch]
    return batch


def _blaming(source: Any) -> Iterator[Any]:
    """What ``source`` gives; what it raises is the user's."""
    try:
        yield from source
    except UserError:
        raise
    except Exception as error:
        raise _in_worker(error) or blamed(error, "data", "raises") from error


def _in_worker(error: Exception) -> UserError | None:
    """An exception that a loader worker sent: its text holds the traceback over there, in which the line is found."""
    _, found, trace = str(error).partition("Original Traceback (most recent call last):")
    if not found:
        return None
    frames = re.findall(r'File "([^"]+)", line (\d+), in .*\n +(.*)', trace)
    last = trace.strip().splitlines()[-1]
    place = next((f"\n  at {path}:{line}: {text}" for path, line, text in reversed(frames) if not _installed(path)), "")
    remedy = "Fix it there; num_workers=0 makes it easier to see."
    return UserError("data", f"raises in a loader worker: {last}{place}", remedy)


def _installed(path: str) -> bool:
    return "site-packages" in path or path.startswith(sysconfig.get_paths()["stdlib"])


def _synchronise(device: Any) -> Callable[[], object]:
    import torch

    return lambda: torch.accelerator.synchronize(device)


def _nothing() -> None:
    return
