"""Traffic between the last-level cache and memory, by an LRU model over whole tensors.

Why tensors and not addresses: operators stream through their operands, so LRU over cache lines can be
followed exactly by keeping, for every tensor, how many of its last bytes are resident; this costs
microseconds where a line simulator costs minutes. Sets, prefetch and sharing with neighbours are left
out. A buffer that is freed leaves the cache without being written back, and a fresh output is
allocated there without being read: the model gives the traffic that cannot be avoided, not what a
bus counter would show.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import takewhile


@dataclass(slots=True)
class _Segment:
    size: float
    dirty: bool


@dataclass(slots=True)
class _Entry:
    """What is resident of a buffer: always its last bytes, the oldest (lowest) first."""

    segments: deque[_Segment] = field(default_factory=deque)

    @property
    def resident(self) -> float:
        return sum(segment.size for segment in self.segments)

    def evict(self, size: float) -> float:
        """Drop the oldest ``size`` bytes; returns how many of them were dirty."""
        out = 0.0
        while size > 0.0 and self.segments:
            oldest = self.segments[0]
            gone = min(size, oldest.size)
            out += gone if oldest.dirty else 0.0
            oldest.size -= gone
            size -= gone
            if oldest.size <= 0.0:
                self.segments.popleft()
        return out


@dataclass(slots=True)
class Touched:
    """The byte ranges of one buffer that were touched, merged and in order."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, end: int) -> int:
        """Touch ``[start, end)``; returns how many of these bytes are new."""
        new = end - start
        merged_start, merged_end = start, end
        kept = []
        for low, high in self.ranges:
            if high < start or low > end:
                kept.append((low, high))
                continue
            new -= max(0, min(high, end) - max(low, start))
            merged_start, merged_end = min(merged_start, low), max(merged_end, high)
        self.ranges = sorted([*kept, (merged_start, merged_end)])
        return new


class CacheModel:
    """Least recently used, fully associative, write back, write allocate without a read.

    ``capacity`` in bytes; None is a cache without end, where only first touches cost. Equal to an LRU
    simulation of single bytes as long as every access streams through a whole buffer (tested).
    """

    def __init__(self, capacity: int | None) -> None:
        self._capacity = float("inf") if capacity is None else float(capacity)
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._used = 0.0

    @property
    def used(self) -> float:
        """Bytes resident now."""
        return self._used

    def read(self, key: Hashable, size: float, *, first: float = 0.0) -> float:
        """Stream through ``size`` bytes of a buffer, ``first`` of them never touched before.

        Returns the bytes that cross memory: what was missing, and the write-back of what had to leave.
        """
        return self._stream(key, size, first, write=False)

    def write(self, key: Hashable, size: float) -> float:
        """Overwrite ``size`` bytes. Returns only the write-back of what had to leave."""
        return self._stream(key, size, 0.0, write=True)

    def forget(self, key: Hashable) -> None:
        """The buffer was freed: its bytes leave without being written back."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._used -= entry.resident

    def keys(self) -> tuple[Hashable, ...]:
        return tuple(self._entries)

    def _stream(self, key: Hashable, size: float, first: float, *, write: bool) -> float:
        room = self._room_before(key)
        entry = self._entries.pop(key, None) or _Entry()
        resident = entry.resident
        warm = size - first
        hit = resident if resident <= warm else warm
        missing = size - hit
        out = 0.0
        if resident and missing > room:
            out += entry.evict(resident)
            self._used -= resident
            missing = size
        came_in = min(missing, self._capacity)
        self._entries[key] = entry
        out += self._make_room(came_in)
        if write:
            out += missing - came_in
            for segment in entry.segments:
                segment.dirty = True
        if came_in:
            entry.segments.appendleft(_Segment(came_in, write))
        self._used += came_in
        return out if write else out + missing

    def _room_before(self, key: Hashable) -> float:
        """Free bytes, and those of buffers that are older than this one."""
        room = self._capacity - self._used
        if key in self._entries:
            room += sum(entry.resident for _, entry in takewhile(lambda pair: pair[0] != key, self._entries.items()))
        return room

    def _make_room(self, size: float) -> float:
        """Evict the oldest buffers until ``size`` fits. Returns the bytes written back."""
        out = 0.0
        while self._used + size > self._capacity:
            oldest = next(iter(self._entries))
            entry = self._entries[oldest]
            gone = min(entry.resident, self._used + size - self._capacity)
            out += entry.evict(gone)
            self._used -= gone
            if not entry.segments:
                del self._entries[oldest]
        return out
