"""Time per aten operator from ``torch.profiler``, in a pass of its own, with the observer's cost taken off.

Why composite operators are opened: ``linear`` only calls ``t`` and ``addmm``, and the ledger, which counts
below autograd, sees the latter. Opening exactly what the dispatcher calls composite gives both passes the
same names and input shapes, so that times can be put on counted operators. Everything under a real
operator (allocation, reorders, faults) is folded into it; what a composite spends itself goes to its
costliest part.

Recording an event costs about as much as a small operator. That cost is measured here (the same calls with
and without the profiler), subtracted per event, and reported as the pseudo-operator ``OBSERVER``; ``CALL`` is
a whole call without the profiler in the same pass. ``diagnose.merge`` takes both out again. It refuses to
report Python time: what lies outside operators is seen by comparing their sum with ``CALL``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from ironlaw.measure.kinds import aten_kind, aten_name, conv_kind
from ironlaw.records import Op

OBSERVER = "ironlaw::observer"
"""Name of the pseudo-operator whose ``time_s`` is what the profiler added to a call, and was taken off."""

CALL = "ironlaw::call"
"""Name of the pseudo-operator whose ``time_s`` is a whole call in this pass, unobserved."""

_BOUNDARY = "ironlaw::boundary"
_FRAMES = ("ironlaw::", "autograd::engine::", "torch::autograd::", "profiler::")
"""What we, autograd and the profiler put around operators, and no operator itself."""
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "long int": "int64",
    "int": "int32",
    "signed char": "int8",
    "unsigned char": "uint8",
    "c10::qint8": "int8",
    "c10::quint8": "uint8",
}


_Key = tuple[str, str, str, str]
"""Name, kind, shape, dtype."""


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    seconds: float = 0.0


def profile(call: Callable[[], object], calls: int) -> tuple[Op, ...]:
    """Seconds per operator, input shapes and dtype in one call: the median over ``calls`` calls of ``call``.

    A median, because a neighbour stalls single operators by milliseconds; whole calls are long enough to meet a
    stall every time, so the quickest stands for them. ``Op.calls`` and ``Op.time_s`` are per call; FLOPs and bytes
    are not counted here (``flops`` None, bytes 0). The shape is that of the inputs, as the ledger writes it:
    ``2x3x16x16,8x3x3x3,8``. The last two are :data:`CALL` and :data:`OBSERVER`.
    """
    if calls < 1:
        raise ValueError("profile needs at least one call")
    call()
    plain = [_seconds(call) for _ in range(calls)]
    roots, watched = _watch(call, calls)
    events = sum(_size(root) for root in roots) / calls
    extra = max(0.0, min(watched) - min(plain))
    cost = extra / events if events else 0.0
    rounds = [_round(root, cost) for root in roots]
    ops = [_op(key, [found[key] for found in rounds if key in found], calls) for key in dict.fromkeys(chain(*rounds))]
    marks = _mark(CALL, 1, min(plain)), _mark(OBSERVER, round(events), extra)
    return (*sorted(ops, key=lambda op: -(op.time_s or 0.0)), *marks)


def _round(root: Any, cost: float) -> dict[_Key, _Sum]:
    """The operators of one call, added up by key."""
    sums: dict[_Key, _Sum] = {}
    for event, seconds in _operators(root, cost):
        total = sums.setdefault(_key(event), _Sum())
        total.calls += 1
        total.seconds += seconds
    return sums


def _op(key: _Key, found: list[_Sum], calls: int) -> Op:
    name, kind, shape, dtype = key
    times = [one.seconds for one in found] + [0.0] * (calls - len(found))
    return Op(
        name=name,
        kind=kind,
        calls=max(1, round(sum(one.calls for one in found) / calls)),
        flops=None,
        bytes_low=0.0,
        bytes_high=0.0,
        dtype=dtype,
        shape=shape,
        time_s=statistics.median(times),
    )


def shapes_text(shapes: Iterable[Iterable[int]]) -> str:
    """Input shapes as one word, tensors only: scalars and lists have an empty shape and are left out."""
    return ",".join("x".join(str(size) for size in shape) for shape in map(tuple, shapes) if shape)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _watch(call: Callable[[], object], calls: int) -> tuple[list[Any], list[float]]:
    import torch.profiler as torch_profiler

    activities = [torch_profiler.ProfilerActivity.CPU]
    watched = []
    with torch_profiler.profile(activities=activities, record_shapes=True) as recorded:
        for _ in range(calls):
            with torch_profiler.record_function(_BOUNDARY):
                watched.append(_seconds(call))
    return [event for event in recorded.events() if event.name == _BOUNDARY], watched


def _size(event: Any) -> int:
    return 1 + sum(_size(child) for child in event.cpu_children)


def _operators(event: Any, cost: float) -> Iterator[tuple[Any, float]]:
    """The operators under an event with their seconds; each event inside cost the observer ``cost``."""
    children = event.cpu_children
    operator = "::" in event.name and not event.name.startswith(_FRAMES)
    if operator and not (children and _composite(event.name)):
        yield event, _net(event, cost)
        return
    found = [pair for child in children for pair in _operators(child, cost)]
    if found and _composite(event.name):
        own = max(0.0, _net(event, cost) - sum(seconds for _, seconds in found))
        top = max(range(len(found)), key=lambda i: found[i][1])
        found[top] = (found[top][0], found[top][1] + own)
    yield from found


def _net(event: Any, cost: float) -> float:
    """Seconds of an event without the observer: half of its own record and all of those inside.

    Events with few arguments cost less than the mean, so that a fifth of the time is always left.
    """
    seconds = float(event.cpu_time_total) * 1e-6
    return max(0.2 * seconds, seconds - cost * (_size(event) - 0.5))


@cache
def _composite(name: str) -> bool:
    """Whether the dispatcher runs it only as a composition of other operators."""
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(overload, "CompositeImplicitAutograd") for overload in _overloads().get(name, ()))


@cache
def _overloads() -> dict[str, list[str]]:
    """Full names in the dispatcher by name without overload; TorchScript's own overloads are not among them."""
    import torch

    found: dict[str, list[str]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        found.setdefault(full.split(".")[0], []).append(full)
    return found


def _key(event: Any) -> _Key:
    name = aten_name(event.name)
    kind = aten_kind(event.name)
    shapes = [shape for shape in event.input_shapes if shape and not isinstance(shape[0], list)]
    if kind == "conv":
        kind = _conv_kind(event, shapes)
    types = [_DTYPES.get(str(one), "") for one in getattr(event, "input_dtypes", None) or ()]
    return name, kind, shapes_text(shapes), next((one for one in types if one), "float32")


def _conv_kind(event: Any, shapes: list[list[int]]) -> str:
    if len(shapes) < 2 or len(shapes[1]) < 3:
        return "conv"
    per_group = shapes[1][1]
    return conv_kind(max(1, shapes[0][1] // max(1, per_group)), per_group)


def _mark(name: str, calls: int, seconds: float) -> Op:
    return Op(name=name, kind="other", calls=calls, flops=None, bytes_low=0.0, bytes_high=0.0, time_s=seconds)
