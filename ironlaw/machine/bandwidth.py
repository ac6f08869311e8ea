"""Bandwidth ceilings by chunk quantiles: DRAM and the last cache level.

Long passes over large arrays average every interruption in: on a shared two-core host they swung
between 6 and 10 GB/s while the memory could do 31. Here pinned threads walk chunks of 2 MiB (a working
set that a cache holds: whole, several times) and each notes when its chunks ended; progress of all
threads is summed on a grid of short windows, and the 90 % quantile of a pass is one sample. Windows sum
over threads at the same instant, so that two threads which take turns never add up to a bandwidth
that was not there.

Reading (an integer maximum, NumPy's SIMD on x86 and ARM) is the roof; copying counts both directions and
is given beside it. The cache is read at a quarter of its size: what lies near the whole of it is shared
with neighbours and with other data.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ironlaw.machine import environment, procfs
from ironlaw.machine.gate import Found, ceiling
from ironlaw.records import Ceiling

CHUNK_BYTES = 2 << 20
DRAM_BYTES = 256 << 20
SMALL_BYTES = 16 << 20
SMALL_CHUNKS = 16
WINDOW_CHUNKS = 2
MIN_PASSES = 5
LEVEL = 0.9

Kernel = Callable[[Any, Any], object]
"""Runs over one chunk: source and target, arrays of bytes."""


class BandwidthProbe:
    """``dram`` and ``cache`` (reading), ``dram_copy`` and ``cache_copy`` (both directions counted), in B/s."""

    name: ClassVar[str] = "bandwidth"

    def measure(self, threads: int, seconds: float) -> Found:
        last = last_level_bytes()
        found: list[Ceiling | str] = []
        for name, total in (("dram", dram_bytes(last, threads)), ("cache", last // 4 if last else 0)):
            if not total:
                found.append("bandwidth of the cache: the system reports no cache size")
                continue
            for suffix, kernel, moved in (("", read, 1), ("_copy", copy, 2)):
                samples = [moved * r for r in passes(kernel, total // moved, threads, seconds / 4.0)]
                note = f"{total >> 20} MiB, {int(LEVEL * 100)} % quantile of windows of {WINDOW_CHUNKS} chunks"
                if not samples:
                    found.append(f"{name}{suffix} at {threads}: the threads never ran at the same time")
                    continue
                found.append(ceiling(name + suffix, "B/s", samples, threads=threads, note=note))
        return tuple(found)


def last_level_bytes(root: Path = Path("/")) -> int | None:
    """The last level's size as the system reports it; None where it does not."""
    return max(procfs.sysfs_caches(root, environment.usable_cpus()[0]).values(), default=None)


def dram_bytes(last_level: int | None, threads: int = 1) -> int:
    """A working set that no cache holds: four times the last level, 64 MiB a thread, within an eighth of the memory."""
    wanted = max(DRAM_BYTES, 4 * (last_level or 0), threads * (64 << 20))
    return min(wanted, environment.memory_bytes() // 8)


def read(source: Any, _target: Any) -> None:
    import numpy as np

    np.maximum.reduce(source, axis=-1)


def copy(source: Any, target: Any) -> None:
    """Row by row: one call over rows that are the same memory would be checked for overlap and crawl."""
    import numpy as np

    if source.ndim == 1:
        np.copyto(target, source)
        return
    for _ in range(len(source)):
        np.copyto(target[0], source[0])


def passes(kernel: Kernel, total_bytes: int, threads: int, seconds: float) -> list[float]:
    """B/s of the source for each pass: the ``LEVEL`` quantile over its windows, the first pass left out.

    The working set is split among the threads; each is pinned to one processor, one per core first.
    """
    walk = _Walk(kernel, max(total_bytes // threads, CHUNK_BYTES // 4), threads, seconds)
    workers = [threading.Thread(target=walk.run, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rates = [window_quantile(ends, walk.chunks) for ends in zip(*walk.logs, strict=True)]
    return [rate for rate in rates[1:] if rate is not None]


def window_quantile(ends: Sequence[Sequence[float]], chunk_bytes: Sequence[int]) -> float | None:
    """B/s of all threads together: the ``LEVEL`` quantile over windows of one pass; None if they ran apart.

    ``ends`` holds for each thread the start of the pass and the time at which each chunk ended. Only
    the time in which every thread was under way counts, and less than half of a pass of it says nothing;
    progress within a chunk is taken as even.
    """
    import numpy as np

    start, stop = max(e[0] for e in ends), min(e[-1] for e in ends)
    if stop - start < 0.5 * max(e[-1] - e[0] for e in ends):
        return None
    progress = np.concatenate(([0.0], np.cumsum(chunk_bytes, dtype=np.float64)))
    windows = max(1, (len(chunk_bytes)) // WINDOW_CHUNKS)
    grid = np.linspace(start, stop, windows + 1)
    done = sum(np.interp(grid, np.asarray(e), progress) for e in ends)
    rates = np.diff(done) / max((grid[-1] - grid[0]) / windows, 1e-9)
    return float(np.quantile(rates, LEVEL))


class _Walk:
    """Threads that walk their arrays chunk by chunk, pass by pass, starting each pass together."""

    def __init__(self, kernel: Kernel, share: int, threads: int, seconds: float) -> None:
        self.kernel, self.share, self.seconds = kernel, share, seconds
        self.chunks = chunk_sizes(share, threads)
        self.cpus = environment.spread_cpus(threads)
        self.logs: list[list[list[float]]] = [[] for _ in range(threads)]
        self._barrier = threading.Barrier(threads, action=self._decide)
        self._stop, self._deadline = False, 0.0

    def run(self, thread: int) -> None:
        pieces = self._pieces(self.cpus[thread % len(self.cpus)])
        while True:
            self._barrier.wait()
            if self._stop:
                return
            ends = [time.perf_counter()]
            for source, target in pieces:
                self.kernel(source, target)
                ends.append(time.perf_counter())
            self.logs[thread].append(ends)

    def _decide(self) -> None:
        """Runs in one thread while all wait, so that they agree on when to end."""
        now = time.perf_counter()
        self._deadline = self._deadline or now + self.seconds
        self._stop = now > self._deadline and len(self.logs[0]) >= MIN_PASSES

    def _pieces(self, cpu: int) -> list[tuple[Any, Any]]:
        """Source and target of each chunk: consecutive parts of a large share, all of a small one several times."""
        import numpy as np

        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {cpu})  # 0 is the calling thread
        source, target = np.ones(self.share, np.uint8), np.zeros(self.share, np.uint8)
        if self.share < SMALL_BYTES:
            rows = self.chunks[0] // self.share
            again = [np.lib.stride_tricks.as_strided(a, (rows, self.share), (0, 1)) for a in (source, target)]
            return [(again[0], again[1])] * len(self.chunks)
        starts = [sum(self.chunks[:n]) for n in range(len(self.chunks))]
        return [(source[at : at + size], target[at : at + size]) for at, size in zip(starts, self.chunks, strict=True)]


def chunk_sizes(share: int, threads: int = 1) -> list[int]:
    """Bytes of each chunk of a pass over a thread's share.

    A share that a cache holds is walked whole, several times a chunk: single chunks of it would be so
    short that the calls count. With many threads chunks are longer, since between two of them a
    thread needs the interpreter's lock.
    """
    if share < SMALL_BYTES:
        return [share * -(-SMALL_BYTES // share)] * SMALL_CHUNKS
    size = min(CHUNK_BYTES * max(1, threads // 8), share // 8)
    whole, rest = divmod(share, size)
    return [size] * whole + ([rest] if rest >= size // 2 else [])
