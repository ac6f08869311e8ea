"""Cache sizes as a bandwidth sweep sees them, next to what the system reports.

The system reports the size that was built; a guest that shares the last level with neighbours gets
less, and a level that is as fast as the next one makes no difference. So the working set is swept
from 8 KiB to far beyond the last level, and its *knees*, where bandwidth leaves a plateau, are the
sizes that matter here. Levels that reading cannot tell apart (the kernel reads about 90 GB/s, less
than most first levels can give) show no knee and are not invented.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw.machine import bandwidth, environment, procfs
from ironlaw.machine.gate import Found, quantile
from ironlaw.records import Cache

SMALLEST_BYTES = 8 << 10
STEPS_PER_OCTAVE = 2
SAMPLE_BYTES = 4 << 20
MIN_DROP = 1.2
"""Neighbouring plateaus are told apart when one is this much faster."""
MAX_PIECES = 7
MAX_SLOPE = 0.15
"""Fall of the logarithm of bandwidth in an octave above which a piece is a slope."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plateau:
    """Working sets of one bandwidth; ``size_bytes`` is the largest that still has it."""

    size_bytes: int
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """Indices ``start`` to ``end`` (exclusive) of a sweep, and the mean of the log of their rates."""

    start: int
    end: int
    level: float


class CachesProbe:
    """Caches by sweep (source ``sweep``) and as reported (source ``system``), on one pinned thread."""

    name: ClassVar[str] = "caches"

    def measure(self, threads: int, seconds: float) -> Found:
        reported = procfs.sysfs_caches(cpu=environment.usable_cpus()[0])
        sizes = sweep_sizes(bandwidth.dram_bytes(max(reported.values(), default=None)))
        rates = sweep(sizes, seconds)
        *inner, _memory = plateaus(sizes, rates)
        found: list[Cache | str] = [
            Cache(level=level, size_bytes=p.size_bytes, bandwidth_bytes_per_s=p.bandwidth_bytes_per_s, source="sweep")
            for level, p in zip(match_levels([p.size_bytes for p in inner], reported), inner, strict=True)
        ]
        if not inner:
            found.append("caches: the sweep shows no knee; the machine is busy, or memory is as fast as its caches")
        for level, size in reported.items():
            rate = _rate_at(size // 2, sizes, rates)
            found.append(Cache(level=level, size_bytes=size, bandwidth_bytes_per_s=rate, source="system"))
        return tuple(found)


def sweep_sizes(largest: int) -> list[int]:
    """Working sets in bytes, in equal steps on the log scale, multiples of a page."""
    count = round(math.log2(largest / SMALLEST_BYTES) * STEPS_PER_OCTAVE) + 1
    ratio = (largest / SMALLEST_BYTES) ** (1.0 / (count - 1))
    return [max(1, round(SMALLEST_BYTES * ratio**n / 4096)) * 4096 for n in range(count)]


def sweep(sizes: Sequence[int], seconds: float) -> list[float]:
    """Reading bandwidth (90 % quantile, B/s) at each size; rounds over all sizes, so that noise spreads evenly."""
    import numpy as np

    memory = np.ones(max(sizes), np.uint8)
    samples: list[list[float]] = [[] for _ in sizes]
    end = time.perf_counter() + seconds
    while len(samples[0]) < 3 or time.perf_counter() < end:
        for size, found in zip(sizes, samples, strict=True):
            rows = max(1, SAMPLE_BYTES // size)
            block = np.broadcast_to(memory[:size], (rows, size))
            np.maximum.reduce(block[:1], axis=1)
            start = time.perf_counter()
            np.maximum.reduce(block, axis=1)
            found.append(rows * size / (time.perf_counter() - start))
    return [quantile(found, 0.9) for found in samples]


def plateaus(sizes: Sequence[int], rates: Sequence[float]) -> tuple[Plateau, ...]:
    """Plateaus of a sweep, the fastest first: the last is the memory behind every cache.

    Bandwidth cannot grow with the working set, so it is first made monotone from the right; then the
    piecewise constant fit to its logarithm is taken whose next piece would explain less than a tenth of
    what is left. Pieces that differ by less than ``MIN_DROP`` are joined; pieces that are short or slope
    are the way from one plateau to the next and dropped. A knee lies where the rate crosses the
    geometric mean of its plateaus, by interpolation on the log scale.
    """
    logs = list(itertools.accumulate((math.log(r) for r in reversed(rates)), max))[::-1]
    joined = _joined(
        [_Piece(start=a, end=b, level=sum(logs[a:b]) / (b - a)) for a, b in itertools.pairwise(_cuts(logs))]
    )
    flat = [p for p in joined if p in (joined[0], joined[-1]) or _is_flat(sizes, logs, p)]
    found = []
    for n, piece in enumerate(flat):
        edge = float(sizes[-1])
        if n < len(flat) - 1:
            edge = _crossing(sizes, logs, piece.start, (piece.level + flat[n + 1].level) / 2.0)
        inside = sorted(logs[piece.start : piece.end])
        found.append(Plateau(size_bytes=int(edge), bandwidth_bytes_per_s=math.exp(inside[len(inside) // 2])))
    return tuple(found)


def _joined(pieces: Sequence[_Piece]) -> list[_Piece]:
    joined = [pieces[0]]
    for piece in pieces[1:]:
        before = joined[-1]
        if before.level - piece.level < math.log(MIN_DROP):
            a, b = before.end - before.start, piece.end - piece.start
            level = (before.level * a + piece.level * b) / (a + b)
            joined[-1] = _Piece(start=before.start, end=piece.end, level=level)
        else:
            joined.append(piece)
    return joined


def _is_flat(sizes: Sequence[int], logs: Sequence[float], piece: _Piece) -> bool:
    """Whether the piece covers an octave and falls by less than ``MAX_SLOPE`` an octave."""
    octaves = math.log2(sizes[piece.end - 1] / sizes[piece.start])
    return octaves >= 0.95 and logs[piece.start] - logs[piece.end - 1] <= MAX_SLOPE * octaves


def match_levels(knees: Sequence[int], reported: dict[int, int]) -> list[int]:
    """The reported level nearest to each knee on the log scale, ascending; numbered from 1 where none is reported.

    A knee below a level's size is that level in part (shared with others), hence the nearest and not
    the next.
    """
    if len(reported) < len(knees):
        return list(range(1, len(knees) + 1))
    levels = sorted(reported)
    chosen = min(
        itertools.combinations(levels, len(knees)),
        key=lambda c: sum(abs(math.log(k / reported[lv])) for k, lv in zip(knees, c, strict=True)),
    )
    return list(chosen)


def _cuts(logs: Sequence[float]) -> list[int]:
    """Cut positions, with 0 and the end, of the piecewise constant fit that :func:`plateaus` describes."""
    count = len(logs)
    sums = [0.0, *itertools.accumulate(logs)]
    squares = [0.0, *itertools.accumulate(v * v for v in logs)]

    def cost(a: int, b: int) -> float:
        return max(0.0, squares[b] - squares[a] - (sums[b] - sums[a]) ** 2 / (b - a))

    best = [(cost(0, b), [0, b]) if b else (0.0, [0]) for b in range(count + 1)]
    chosen = best[count]
    for pieces in range(2, min(MAX_PIECES, count) + 1):
        best = [
            min(((best[a][0] + cost(a, b), [*best[a][1], b]) for a in range(pieces - 1, b)), default=(math.inf, []))
            for b in range(count + 1)
        ]
        if chosen[0] - best[count][0] < max(0.1 * chosen[0], 1e-3 * count):
            break
        chosen = best[count]
    return chosen[1]


def _crossing(sizes: Sequence[int], logs: Sequence[float], start: int, level: float) -> float:
    """Where the monotone curve falls through ``level``, from index ``start`` on."""
    for n in range(start, len(sizes) - 1):
        if logs[n] >= level > logs[n + 1]:
            part = (logs[n] - level) / (logs[n] - logs[n + 1])
            return float(sizes[n] * (sizes[n + 1] / sizes[n]) ** part)
    return float(sizes[start])


def _rate_at(size: int, sizes: Sequence[int], rates: Sequence[float]) -> float:
    return min(zip(sizes, rates, strict=True), key=lambda pair: abs(math.log(pair[0] / size)))[1]
