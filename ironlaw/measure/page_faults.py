"""Page faults of a call in a warm process, predicted from the lives of its storages: nothing is timed.

Why it can be known: glibc maps what is above its threshold anew for every request, and trims the heap whenever enough
of it is free at the top; both limits follow the largest mapping that was freed. So the same calls are replayed, storage
by storage and scratch by scratch, through :mod:`ironlaw.measure.c_allocator`, and what the last ones write first has to
be faulted in. It refuses C libraries other than glibc, and knows nothing of huge pages or of allocator variables.
"""

from __future__ import annotations

import itertools
import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ironlaw.measure.c_allocator import OBJECTS, Heap, Traffic
from ironlaw.measure.storages import Part, Storages
from ironlaw.records import Interval

CALLS, STEADY = 12, 4
"""Calls that are replayed, and how many of the last ones count: an equal block moves through fresh heap for a while."""
IMPORTED = 900 << 10
"""Threshold of mmap after torch was imported: between 800 and 1024 KiB (torch 2.13, found by asking for ever more)."""
INFERENCE = (104, 184)
"""Bytes of what is beside a tensor without a graph: its storage and itself. The value; the draws are its interval."""
DIFFER = 0.3
"""How far a process may lie beyond the draws, either way: a heap is chaotic."""
_PAGE = 4096


def call_faults(call: Callable[[], Any], weights: Iterable[Any], inputs: Iterable[Any] = ()) -> Interval | None:
    """Minor faults of one warm ``call`` with gradients off, in a process of its own; None where it is not glibc's.

    ``weights`` and ``inputs`` are the tensors that live before. The call is made :data:`CALLS` times, for its shapes.
    """
    if platform.libc_ver()[0] != "glibc":
        return None
    held = list(weights)
    traffics = _watched(call, held, inputs)
    largest = max((int(tensor.nbytes) for tensor in held), default=0)
    threshold = max(IMPORTED, largest + _PAGE)  # reading a model frees a buffer as large as its largest weight
    value = steady_faults(traffics, threshold, INFERENCE)
    found = [value, *(steady_faults(traffics, threshold, objects) for objects in ((), *OBJECTS))]
    return Interval(low=(1 - DIFFER) * min(found), value=value, high=(1 + DIFFER) * max(found))


def steady_faults(traffics: Sequence[Traffic], threshold: int, objects: Sequence[int] = ()) -> float:
    """Faults in the mean of the last :data:`STEADY` of these, on a heap that is full when the first begins."""
    heap = Heap(threshold=threshold, trim=2 * threshold)
    faulted = []
    for traffic in traffics:
        before = heap.faulted
        for event in traffic:
            heap.play(event, objects)
        faulted.append((heap.faulted - before) / _PAGE)
    last = faulted[-STEADY:]
    return sum(last) / len(last)


def _watched(call: Callable[[], Any], weights: Iterable[Any], inputs: Iterable[Any]) -> list[Traffic]:
    """What making the tensors and then each call ask of the allocator; results are dropped before the next call."""
    import torch

    storages = Storages()
    storages.label(weights, Part.PARAMETERS)
    storages.label(inputs, Part.INPUTS)
    ends = [0, len(storages.traffic())]
    with torch.no_grad():
        for _ in range(CALLS):
            with storages.mode():
                call()
            ends.append(len(storages.traffic()))
    whole = storages.traffic()
    return [whole[start:end] for start, end in itertools.pairwise(ends)]
