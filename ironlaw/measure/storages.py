"""Births and deaths of tensor storages, and the moment when most bytes are alive.

Why storages and weak references: views, in-place updates and aliases share one storage, and only its death gives
memory back, whoever held it last. The log is replayed afterwards, when it is known what each storage was for.
It works alike on real and on fake tensors, so that a prediction and its measurement mean the same thing.
A dispatch mode changes timing: this is a counting pass, never a timing pass.

One thing is put right: autograd adds two gradients of one tensor in place when nobody else holds the first, but not
under a dispatch mode. Such an addition, whose first operand dies at once, is logged as the in-place one.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ironlaw.measure.c_allocator import Give, Take, Touch, allocated_peak
from ironlaw.measure.kernel_workspace import RESULT, Script, fills_workspace, repaired, script, untouched_bytes
from ironlaw.measure.operands import tensors
from ironlaw.measure.training_step import Phase


class Part(StrEnum):
    """What a storage is for. Buffers of the model count as parameters."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMISER = "optimiser"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    INPUTS = "inputs"


@dataclass(slots=True)
class _Buffer:
    size: int
    graph: bool
    untouched: int = 0
    never_touched: int = 0
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class _Born:
    number: int
    joined: bool


@dataclass(frozen=True, slots=True)
class _Died:
    number: int


@dataclass(frozen=True, slots=True)
class _Resized:
    number: int
    more: int


@dataclass(frozen=True, slots=True)
class _Touched:
    number: int


@dataclass(frozen=True, slots=True)
class _Operator:
    name: str
    phase: Phase
    script: Script = ()


_Event = _Born | _Died | _Resized | _Touched | _Operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """The live bytes by part when their sum was greatest, and what ran then.

    ``allocated_bytes`` is the greatest sum of live bytes and the workspace of the kernel at work, which may be
    another moment.
    """

    parts: dict[Part, int]
    operator: str
    phase: Phase
    allocated_bytes: float


@dataclass(slots=True)
class Storages:
    """Watches what happens under :meth:`mode`. ``phase`` is set by the caller."""

    phase: Phase = Phase.SETUP
    _buffers: list[_Buffer] = field(default_factory=list)
    _known: dict[int, tuple[weakref.ref[Any], int]] = field(default_factory=dict)
    _alive: set[int] = field(default_factory=set)
    _events: list[_Event] = field(default_factory=list)
    _graph: bool = False

    def mode(self) -> AbstractContextManager[Any]:
        """A dispatch mode that logs every operator, and the storages that it makes."""
        from torch.utils._python_dispatch import TorchDispatchMode

        watch = self._call

        class Watching(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return watch(func, args, kwargs or {})

        return Watching()

    def enter(self, phase: Phase) -> None:
        """A phase begins: what the graph of the last one still holds are activations."""
        self._graph_ends()
        self.phase = phase

    def label(self, found: Iterable[Any], part: Part) -> None:
        """Say what these tensors are for; the first label stays, and a label overrides what was inferred."""
        for tensor in found:
            for storage in _storages(tensor):
                buffer = self._buffers[self._number(storage, joined=False)]
                if buffer.part in (None, Part.ACTIVATIONS):
                    buffer.part = part

    def peak(self) -> Moment:
        """Replay the log."""
        return _replay(self._events, self._buffers)

    def traffic(self) -> list[Take | Touch | Give]:
        """The log as requests to an allocator: tensors, and what each kernel takes for itself."""
        return list(_traffic(self._events, self._buffers))

    def _call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        import torch

        builds_graph = self.phase == Phase.FORWARD or (self.phase == Phase.BACKWARD and torch.is_grad_enabled())
        if self._graph and not builds_graph:
            self._graph_ends()
        self._graph = builds_graph
        place = len(self._events)
        out = repaired(func, args, func(*args, **kwargs))
        operator = _Operator(str(func), self.phase, script(func, args, out))
        self._events.insert(place, operator)
        joined = self.phase == Phase.BACKWARD and not builds_graph and func is torch.ops.aten.add.Tensor
        results = [storage for tensor in tensors(out) for storage in _storages(tensor)]
        for storage in results:
            self._number(storage, joined=joined)
        if untouched := untouched_bytes(func, args, after=False):
            buffer = self._buffers[self._number(results[-1], joined=False)]
            buffer.untouched, buffer.never_touched = untouched, untouched_bytes(func, args, after=True)
        if func._schema.is_mutable or fills_workspace(func):
            for tensor in tensors(args):
                self._written(tensor)
        return out

    def _graph_ends(self) -> None:
        for number in list(self._alive):  # the garbage collector may run within
            buffer = self._buffers[number]
            if buffer.graph and buffer.part is None:
                buffer.part = Part.ACTIVATIONS

    def _number(self, storage: Any, *, joined: bool) -> int:
        known = self._known_as(storage)
        if known is not None:
            return known
        number = len(self._buffers)
        self._buffers.append(_Buffer(storage.nbytes(), self._graph))
        self._events.append(_Born(number, joined))
        self._alive.add(number)
        self._known[id(storage)] = (weakref.ref(storage, self._undertaker(number)), number)
        return number

    def _known_as(self, storage: Any) -> int | None:
        reference, number = self._known.get(id(storage), (None, 0))
        return number if reference is not None and reference() is storage else None

    def _undertaker(self, number: int) -> Callable[[Any], None]:
        events, alive = self._events, self._alive

        def died(_: Any) -> None:
            events.append(_Died(number))
            alive.discard(number)

        return died

    def _written(self, tensor: Any) -> None:
        """An operand that may have been resized, or of which a part had not been written before."""
        for storage in _storages(tensor):
            number = self._known_as(storage)
            if number is None:
                continue
            buffer = self._buffers[number]
            if buffer.untouched:
                self._events.append(_Touched(number))
            if storage.nbytes() > buffer.size:
                self._events.append(_Resized(number, storage.nbytes() - buffer.size))
                buffer.size = storage.nbytes()


def _storages(tensor: Any) -> list[Any]:
    """The storages of a tensor: one, or those of a sparse tensor's indices and values; none where it is opaque."""
    import torch

    if tensor.layout == torch.strided:
        return [tensor.untyped_storage()]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices().untyped_storage(), tensor._values().untyped_storage()]
    return []


@dataclass(slots=True)
class _Replay:
    """Live bytes by number of buffer; sums of gradients wait until their operands had time to die."""

    sizes: dict[int, int]
    live: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    total: int = 0
    running: _Operator = _Operator("", Phase.SETUP)
    best: int = -1
    at: _Operator = _Operator("", Phase.SETUP)

    def play(self, event: _Event) -> None:
        match event:
            case _Operator():
                self._settle()
                self.running = event
            case _Born(number, joined) if joined:
                self.waiting[number] = self.sizes[number]
            case _Born(number, _):
                self._add(number, self.sizes[number])
            case _Resized(number, more):
                self._add(number, more)
            case _Died(number) if number in self.waiting:
                del self.waiting[number]
            case _Died(number):
                self.total -= self.live.pop(number)

    def _settle(self) -> None:
        for number, size in self.waiting.items():
            self._add(number, size)
        self.waiting.clear()

    def _add(self, number: int, size: int) -> None:
        self.live[number] = self.live.get(number, 0) + size
        self.total += size
        if self.total > self.best:
            self.best, self.at = self.total, self.running


def _replay(events: list[_Event], buffers: list[_Buffer]) -> Moment:
    """Two passes: the first finds the height of the peak, the second what was alive there."""
    sizes = _first_sizes(events, buffers)
    whole, until = _Replay(sizes), _Replay(sizes)
    for event in events:
        whole.play(event)
    for event in events:
        until.play(event)
        if until.best == whole.best:
            break
    parts = dict.fromkeys(Part, 0)
    for number, size in until.live.items():
        parts[buffers[number].part or Part.TEMPORARIES] += size
    given = allocated_peak(_traffic(events, buffers))
    return Moment(parts=parts, operator=whole.at.name, phase=whole.at.phase, allocated_bytes=float(given))


def _first_sizes(events: list[_Event], buffers: list[_Buffer]) -> dict[int, int]:
    """Size of each buffer at birth: what it grew by later is taken off."""
    sizes = {number: buffer.size for number, buffer in enumerate(buffers)}
    for event in events:
        if isinstance(event, _Resized):
            sizes[event.number] -= event.more
    return sizes


def _traffic(events: list[_Event], buffers: list[_Buffer]) -> Iterator[Take | Touch | Give]:
    sizes = _first_sizes(events, buffers)
    waiting: dict[int, int] = {}
    left: Iterator[Any] = iter(())
    for event in events:
        match event:
            case _Operator():
                yield from (step for step in left if step is not RESULT)
                yield from (Take(number, size, tensor=True) for number, size in waiting.items())
                waiting.clear()
                left = iter(event.script)
                yield from itertools.takewhile(_is_scratch, left)
            case _Born(number, joined) if joined:
                waiting[number] = sizes[number]
            case _Born(number, _):
                yield Take(number, sizes[number], buffers[number].untouched, tensor=True)
                yield from itertools.takewhile(_is_scratch, left)
            case _Resized(number, more):
                yield Give(number)
                sizes[number] += more
                yield Take(number, sizes[number], tensor=True)
            case _Touched(number):
                yield Touch(number, buffers[number].never_touched)
            case _Died(number) if number in waiting:
                del waiting[number]
            case _Died(number):
                yield Give(number)


def _is_scratch(step: object) -> bool:
    return step is not RESULT
