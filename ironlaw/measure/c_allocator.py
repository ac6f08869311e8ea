"""What a process keeps of memory that was given back: glibc's malloc, followed chunk by chunk.

Why a simulation: resident memory of eager training is up to twice what its tensors ever held together. glibc takes
what is below a moving threshold from one heap, where a freed chunk serves again only if it is large enough, and torch
asks for addresses aligned to 64 bytes: the request is larger than the chunk that an equal tensor has left. The slivers
beside an aligned chunk, and small objects that are put into them, then keep large neighbours apart.

Followed, as in glibc 2.36: the threshold of mmap, best fit, merging, trimming, the caches for small chunks. Not known
are a program's own small objects. Those that every tensor has are taken as they are in torch; how many more there are
is drawn (:data:`OBJECTS`), and the spread of the outcomes is the uncertainty: the heap is chaotic, and two runs of one
program differ. Other C libraries and other arenas than the main one are not modelled.
"""

from __future__ import annotations

import bisect
import platform
import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from ironlaw.records import Interval, exactly

OBJECTS = ((104,), (104, 184), (104, 184, 56), (104, 184, 24, 24, 56, 232))
"""Bytes of the small objects beside a tensor: its storage, the tensor, a saved variable, a node of the graph."""

RUNS = 0.1
"""How far a run may lie from the middle of several: two of one program were seen at 136 and 168 MB."""

ALIGNMENT = 64
_LEAST, _HEADER, _PAGE = 32, 8, 4096
_DEFAULT_THRESHOLD, _TOP_PAD, _LARGEST_THRESHOLD = 128 * 1024, 128 * 1024, 32 * 2**20
_CONSOLIDATE, _CACHED, _CACHE_LENGTH, _FAST, _SMALL = 65536, 1040, 7, 128, 1024


@dataclass(frozen=True, slots=True)
class Take:
    """Allocate ``size`` bytes, of which ``untouched`` are not written before a :class:`Touch`.

    A ``tensor`` has small objects of its own beside it.
    """

    key: Hashable
    size: int
    untouched: int = 0
    tensor: bool = False


@dataclass(frozen=True, slots=True)
class Touch:
    """The allocation has been written, but for ``untouched`` bytes."""

    key: Hashable
    untouched: int = 0


@dataclass(frozen=True, slots=True)
class Give:
    """Free the allocation."""

    key: Hashable


Traffic = Sequence[Take | Touch | Give]


def resident(traffic: Traffic) -> Interval:
    """Largest number of resident bytes: the middle of what the draws give, their ends and :data:`RUNS` beyond them.

    What was taken together at most, as a number without width, where the C library is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return exactly(float(allocated_peak(traffic)))
    found = [float(resident_peak(traffic, objects)) for objects in OBJECTS]
    return Interval(low=min(found) * (1 - RUNS), value=statistics.median(found), high=max(found) * (1 + RUNS))


def allocated_peak(traffic: Iterable[Take | Touch | Give]) -> int:
    """Largest sum of what was taken and not given back."""
    held: dict[Hashable, int] = {}
    total = peak = 0
    for event in traffic:
        if isinstance(event, Take):
            held[event.key] = event.size
            total += event.size
            peak = max(peak, total)
        elif isinstance(event, Give):
            total -= held.pop(event.key)
    return peak


def resident_peak(traffic: Iterable[Take | Touch | Give], objects: Sequence[int] = ()) -> int:
    """Largest number of bytes resident, with small ``objects`` of these sizes beside every tensor.

    The heap is taken as full before: what the program had freed until then serves nobody.
    """
    heap = Heap()
    for event in traffic:
        heap.play(event, objects)
    return heap.peak


@dataclass(slots=True)
class Heap:
    """The main arena: chunks from 0 to ``top``, the top chunk up to ``end``, pages written up to ``touched``.

    ``faulted`` adds up bytes that were written for the first time since the system gave them. ``holes`` are bytes below
    ``touched`` that nobody has written yet. ``cached`` and ``fast`` are free chunks by size that count as used: they do
    not merge with their neighbours.
    """

    peak: int = 0
    top: int = 0
    end: int = 0
    touched: int = 0
    faulted: int = 0
    threshold: int = _DEFAULT_THRESHOLD
    trim: int = _DEFAULT_THRESHOLD
    mapped_total: int = 0
    by_size: list[tuple[int, int]] = field(default_factory=list)
    size_at: dict[int, int] = field(default_factory=dict)
    start_before: dict[int, int] = field(default_factory=dict)
    cached: dict[int, list[int]] = field(default_factory=dict)
    fast: list[tuple[int, int]] = field(default_factory=list)
    used: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    mapped: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    holes: dict[Hashable, int] = field(default_factory=dict)

    def play(self, event: Take | Touch | Give, objects: Sequence[int] = ()) -> None:
        """One request, with small ``objects`` of these sizes beside every tensor."""
        match event:
            case Take(key, size, untouched, tensor):
                for index, small in enumerate(objects if tensor else ()):
                    self.take_small((key, index), small)
                self.take(key, size, untouched)
            case Touch(key, untouched):
                self.touch(key, untouched)
            case Give(key):
                self.give(key)
                for index in range(len(objects)):
                    self.give((key, index))

    def take_small(self, key: Hashable, size: int) -> None:
        need = _chunk(size)
        if self.cached.get(need):
            self.used[key] = (self.cached[need].pop(), need)
            return
        found = self._find(need)
        assert found is not None, "only what is large is mapped"
        self.used[key] = found
        self._write_up_to(sum(found))
        self._look()

    def take(self, key: Hashable, size: int, untouched: int) -> None:
        need = _chunk(size)
        found = self._find(_chunk(need + ALIGNMENT + _LEAST))
        if found is None:
            length = -(-(need + ALIGNMENT + _LEAST + _HEADER) // _PAGE) * _PAGE
            self.mapped[key] = (length, untouched)
            self.mapped_total += length - untouched
            self.faulted += length - untouched
        else:
            written = self.touched
            start, length = self.used[key] = self._align(*found, need)
            if untouched:
                self.holes[key] = max(0, min(untouched, start + length - written))
                self.faulted -= self.holes[key]
        self._look()

    def touch(self, key: Hashable, untouched: int) -> None:
        if key in self.mapped:
            length, before = self.mapped[key]
            self.mapped[key] = (length, untouched)
            self.mapped_total += before - untouched
            self.faulted += before - untouched
        if key in self.holes:
            before, self.holes[key] = self.holes[key], min(self.holes[key], untouched)
            self.faulted += before - self.holes[key]
        self._look()

    def give(self, key: Hashable) -> None:
        if key in self.used:
            self.holes.pop(key, None)
            self._free(*self.used.pop(key))
        elif key in self.mapped:
            length, untouched = self.mapped.pop(key)
            self.mapped_total -= length - untouched
            if self.threshold < length <= _LARGEST_THRESHOLD:
                self.threshold, self.trim = length, 2 * length

    def _write_up_to(self, end: int) -> None:
        self.faulted += max(0, end - self.touched)
        self.touched = max(self.touched, end)

    def _look(self) -> None:
        self.peak = max(self.peak, self.touched - sum(self.holes.values()) + self.mapped_total)

    def _find(self, need: int) -> tuple[int, int] | None:
        """(start, size) of a chunk on the heap: best fit, else from the top; None where it is mapped instead."""
        for index, (size, start) in enumerate(self.fast):
            if size == need:
                del self.fast[index]
                return start, need
        if need >= _SMALL:
            self._consolidate()
        place = bisect.bisect_left(self.by_size, (need, -1))
        if place < len(self.by_size):
            size, start = self.by_size[place]
            self._remove(start, size)
            if size - need < _LEAST:
                return start, size
            self._insert(start + need, size - need)
            return start, need
        if self.end - self.top < need + _LEAST:
            if need >= self.threshold:
                return None
            more = need + _TOP_PAD + _LEAST - (self.end - self.top)
            self.end += -(-more // _PAGE) * _PAGE
        start = self.top
        self.top += need
        return start, need

    def _align(self, start: int, size: int, need: int) -> tuple[int, int]:
        """Free the slivers before and behind the aligned chunk."""
        lead = -(start + 2 * _HEADER) % ALIGNMENT
        if 0 < lead < _LEAST:
            lead += ALIGNMENT
        if lead:
            self._free(start, lead)
        begin, left = start + lead, size - lead - need
        if left > _LEAST:
            self._free(begin + need, left)
            left = 0
        self._write_up_to(min(begin + need + left, self.end))
        return begin, need + left

    def _free(self, start: int, size: int) -> None:
        if size <= _CACHED and len(self.cached.setdefault(size, [])) < _CACHE_LENGTH:
            self.cached[size].append(start)
        elif size <= _FAST:
            self.fast.append((size, start))
        elif self._merge(start, size) >= _CONSOLIDATE:
            self._consolidate()
            if self.end - self.top >= self.trim:
                self.end -= max(0, (self.end - self.top - _LEAST - 1 - _TOP_PAD) // _PAGE * _PAGE)
                self.touched = min(self.touched, self.end)

    def _consolidate(self) -> None:
        waiting, self.fast = self.fast, []
        for size, start in waiting:
            self._merge(start, size)

    def _merge(self, start: int, size: int) -> int:
        """Join a free chunk with free neighbours, or the top; returns how large it is then."""
        before = self.start_before.get(start)
        if before is not None:
            length = self.size_at[before]
            self._remove(before, length)
            start, size = before, size + length
        after = self.size_at.get(start + size)
        if after is not None:
            self._remove(start + size, after)
            size += after
        if start + size == self.top:
            self.top = start
        else:
            self._insert(start, size)
        return size

    def _insert(self, start: int, size: int) -> None:
        bisect.insort(self.by_size, (size, start))
        self.size_at[start] = size
        self.start_before[start + size] = start

    def _remove(self, start: int, size: int) -> None:
        self.by_size.pop(bisect.bisect_left(self.by_size, (size, start)))
        del self.size_at[start], self.start_before[start + size]


def _chunk(size: int) -> int:
    return max(_LEAST, (size + _HEADER + 15) // 16 * 16)
