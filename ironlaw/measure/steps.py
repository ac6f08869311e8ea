"""Splits the wall time of training steps, and sets them against steps whose input is already in memory.

Blocks, not steps, are the unit: a loader with workers hands batches over in bursts, so that the median of single
steps can be free of a wait that is half of the mean. Blocks on fresh and on cached batches take turns in one process,
N C N C .. N. After a cached block the loader has run ahead, so as many steps as it can hold are run and not counted;
before one it is given time to fill up and fall silent. Beginning an epoch is kept apart and shared out over its steps,
since a block may or may not contain one. Nothing is observed here but the clock; operators have a pass of their own.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import psutil

from ironlaw.measure.foreign import ForeignClock
from ironlaw.measure.paired import FOREIGN_LIMIT
from ironlaw.measure.statistics import gain_of, launch_interval
from ironlaw.records import Interval
from ironlaw.records.training import StepTimes

PARTS = ("wait", "copy", "forward", "backward", "optimiser")
QUIET_SHARE = 0.5
"""Blocks beside busy neighbours are left out where at least this share is quiet."""
_CALM_S = 0.06
_CALM_LIMIT_S = 3.0


class Steps(Protocol):
    """The pieces of one step, each finished when it returns."""

    def copy(self, batch: Any) -> Any:
        """The batch on the device of the model."""

    def clear(self) -> None:
        """Zero the gradients."""

    def forward(self, batch: Any) -> Any:
        """The loss."""

    def backward(self, loss: Any) -> None:
        """Fill the gradients."""

    def update(self) -> None:
        """One step of the optimiser."""


class Feed:
    """Batches without end: where an epoch ends the next one begins, and the seconds that takes are kept apart."""

    def __init__(self, epoch: Callable[[], Iterator[Any]]) -> None:
        self._epoch = epoch
        self._batches: Iterator[Any] = iter(())
        self.starts_s: list[float] = []
        self.lengths: list[int] = []
        self._given = 0

    def take(self) -> Any:
        for batch in self._batches:
            self._given += 1
            return batch
        if self.starts_s:
            self.lengths.append(self._given)
        return self.begin()

    def begin(self) -> Any:
        """Start an epoch whatever is left of the last one; its first batch."""
        start = time.perf_counter()
        self._batches = iter(())
        self._batches = self._epoch()
        batch = next(self._batches)
        self.starts_s.append(time.perf_counter() - start)
        self._given = 1
        return batch


class Ring:
    """The same few batches again and again: loading that takes no time."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self._batches, self._at = batches, 0

    def take(self) -> Any:
        self._at = (self._at + 1) % len(self._batches)
        return self._batches[self._at]


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Consecutive steps: seconds a step by part and in all, beginnings of epochs taken off; ``foreign`` of the CPUs.

    ``loader_cpu`` is the CPU time of each loader worker over the wall time; None where workers came or went.
    """

    steps: int
    wall_s: float
    parts_s: tuple[float, ...]
    faults: float
    cpu_s: float
    system_s: float
    foreign: float | None
    loader_cpu: float | None = None
    loader_threads: int | None = None

    @property
    def work_s(self) -> float:
        return sum(self.parts_s[2:])


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLaunch:
    """What one process gave: normal blocks around cached ones, and what beginning an epoch took."""

    normal: tuple[Block, ...]
    cached: tuple[Block, ...]
    starts_s: tuple[float, ...]
    batches: int | None


def one_step(job: Steps, take: Callable[[], Any]) -> list[float]:
    """Seconds of each of :data:`PARTS`; zeroing the gradients belongs to the optimiser."""
    clock = time.perf_counter
    start = clock()
    batch = take()
    taken = clock()
    batch = job.copy(batch)
    copied = clock()
    job.clear()
    cleared = clock()
    loss = job.forward(batch)
    forwarded = clock()
    job.backward(loss)
    differentiated = clock()
    job.update()
    updating = clock() - differentiated
    return [
        taken - start,
        copied - taken,
        forwarded - cleared,
        differentiated - forwarded,
        cleared - copied + updating,
    ]


def block(job: Steps, feed: Feed | Ring, *, seconds: float, least: int) -> Block:
    """Steps for about ``seconds``, at least ``least`` of them."""
    workers = _workers()
    clock = ForeignClock([os.getpid(), *(one.pid for one in workers)])
    begun = len(feed.starts_s) if isinstance(feed, Feed) else 0
    busy_s, before = _cpu_s(workers), resource.getrusage(resource.RUSAGE_SELF)
    mark, start = clock.mark(), time.perf_counter()
    sums, steps = [0.0] * len(PARTS), 0
    while steps < least or time.perf_counter() < start + seconds:
        sums = [total + part for total, part in zip(sums, one_step(job, feed.take), strict=True)]
        steps += 1
    wall_s = time.perf_counter() - start
    after, foreign = resource.getrusage(resource.RUSAGE_SELF), clock.since(mark)
    begins = feed.starts_s[begun:] if isinstance(feed, Feed) else []
    sums[0] -= sum(begins)
    return Block(
        steps=steps,
        wall_s=(wall_s - sum(begins)) / steps,
        parts_s=tuple(total / steps for total in sums),
        faults=(after.ru_minflt - before.ru_minflt) / steps,
        cpu_s=(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / steps,
        system_s=(after.ru_stime - before.ru_stime) / steps,
        foreign=None if begins and workers else foreign,
        loader_cpu=None if begins or not workers else (_cpu_s(workers) - busy_s) / wall_s / len(workers),
        loader_threads=_threads(_workers()),
    )


def turns(
    job: Steps, feed: Feed, ring: Ring, *, seconds: float, block_s: float, step_s: float, ahead: int
) -> StepLaunch:
    """Normal and cached blocks in turn for about ``seconds``; ``ahead`` is how many batches the loader can hold.

    A block is long enough to level out the bursts of the loader, except where single steps (``step_s``) are slow.
    """
    least = max(1, min(ahead, int(3 * block_s / step_s)))
    normal, cached = [block(job, feed, seconds=block_s, least=least)], list[Block]()
    end = time.perf_counter() + seconds
    while len(cached) < 2 or time.perf_counter() < end:
        calm()
        cached.append(block(job, ring, seconds=block_s, least=1))
        for _ in range(ahead):
            one_step(job, feed.take)
        normal.append(block(job, feed, seconds=block_s, least=least))
    feed.begin()
    starts = feed.starts_s[1:]
    batches = statistics.median_low(feed.lengths) if feed.lengths else None
    return StepLaunch(normal=tuple(normal), cached=tuple(cached), starts_s=tuple(starts), batches=batches)


def calm() -> None:
    """Wait until the loader's workers have fallen silent, at most a few seconds."""
    workers = _workers()
    end = time.perf_counter() + _CALM_LIMIT_S
    used = _cpu_s(workers)
    while workers and time.perf_counter() < end:
        time.sleep(_CALM_S)
        now = _cpu_s(workers)
        if now <= used:
            return
        used = now


def launch_data(launch: StepLaunch) -> dict[str, Any]:
    return asdict(launch)


def launch_from(data: dict[str, Any]) -> StepLaunch:
    blocks = {name: tuple(_block_from(one) for one in data[name]) for name in ("normal", "cached")}
    return StepLaunch(**{**data, **blocks, "starts_s": tuple(data["starts_s"])})


def _block_from(data: dict[str, Any]) -> Block:
    return Block(**{**data, "parts_s": tuple(data["parts_s"])})


# ---------------------------------------------------------------- launches to one record


def step_times(launches: Sequence[StepLaunch], *, batch: int, device: str, batches: int | None) -> StepTimes:
    """What the launches show together: block medians a launch, intervals over launches, parts that sum to the total.

    Medians of parts need not sum to the median of the whole, so they are scaled to it (by a per cent or so).
    ``batches`` of an epoch: with them the seconds of beginning one are shared out.
    """
    if device == "cpu":
        launches = [_without_copies(launch) for launch in launches]
    normal = [_quiet(launch.normal) for launch in launches]
    cached = [_quiet(launch.cached) for launch in launches]
    walls = _interval([[b.wall_s for b in blocks] for blocks in normal])
    parts = [_interval([[b.parts_s[i] for b in blocks] for blocks in normal]) for i in range(len(PARTS))]
    rest = _interval([[b.wall_s - sum(b.parts_s) for b in blocks] for blocks in normal])
    scale = walls.value / sum(part.value for part in (*parts, rest))
    wait, copy, forward, backward, optimiser, rest = (part.scaled(scale) for part in (*parts, rest))
    restart = _restart(launches, batches)
    still = [statistics.median(b.work_s for b in blocks) for blocks in cached]
    slower = [[b.work_s - alone for b in blocks] for blocks, alone in zip(normal, still, strict=True)]
    every = [b for launch in launches for b in (*launch.normal, *launch.cached)]
    foreign = [b.foreign for b in every if b.foreign is not None]
    quiet = sum(value <= FOREIGN_LIMIT for value in foreign) >= QUIET_SHARE * len(foreign)
    return StepTimes(
        total=_plus(walls, restart),
        wait=wait,
        restart=restart,
        copy=copy,
        forward=forward,
        backward=backward,
        optimiser=optimiser,
        rest=rest,
        cached=_interval([[b.wall_s for b in blocks] for blocks in cached]),
        contention=_signed(slower),
        gain=gain_of([_ratios(launch, restart.value) for launch in launches], floor=1.0, settled=quiet),
        faults=statistics.median(b.faults for blocks in cached for b in blocks),
        cpu_s=statistics.mean(b.cpu_s for blocks in cached for b in blocks),
        system_s=statistics.mean(b.system_s for blocks in cached for b in blocks),
        foreign_cpu=statistics.median(foreign) if foreign else 0.0,
        device=device,
        batch=batch,
        steps=sum(b.steps for blocks in normal for b in blocks),
        blocks=sum(len(blocks) for blocks in normal),
        launches=len(launches),
    )


def _without_copies(launch: StepLaunch) -> StepLaunch:
    """On the CPU nothing is copied: what was timed there is the clock, and belongs to the rest."""
    normal = tuple(replace(b, parts_s=(b.parts_s[0], 0.0, *b.parts_s[2:])) for b in launch.normal)
    return replace(launch, normal=normal)


def _ratios(launch: StepLaunch, restart_s: float) -> list[float]:
    """Log of normal over cached; each cached block stands between two normal ones."""
    walls = [math.log(b.wall_s + restart_s) for b in launch.normal]
    return [(walls[i] + walls[i + 1]) / 2 - math.log(b.wall_s) for i, b in enumerate(launch.cached)]


def _restart(launches: Sequence[StepLaunch], batches: int | None) -> Interval:
    if not batches:
        return Interval(low=0.0, value=0.0, high=0.0)
    return _interval([list(launch.starts_s) for launch in launches]).scaled(1.0 / batches)


def _quiet(blocks: Sequence[Block]) -> list[Block]:
    """Blocks without busy neighbours, where there are enough of them."""
    quiet = [b for b in blocks if b.foreign is None or b.foreign <= FOREIGN_LIMIT]
    return quiet if len(quiet) >= QUIET_SHARE * len(blocks) else list(blocks)


def _interval(groups: Sequence[Sequence[float]]) -> Interval:
    found = _signed(groups)
    return Interval(low=max(0.0, found.low), value=max(0.0, found.value), high=max(0.0, found.high))


def _signed(groups: Sequence[Sequence[float]]) -> Interval:
    low, value, high = launch_interval(groups)
    return Interval(low=low, value=value, high=high)


def _plus(one: Interval, other: Interval) -> Interval:
    return Interval(low=one.low + other.low, value=one.value + other.value, high=one.high + other.high)


def _workers() -> list[psutil.Process]:
    """The processes that load for this one."""
    found = []
    for child in multiprocessing.active_children():
        try:
            found.append(psutil.Process(child.pid))
        except psutil.NoSuchProcess:
            continue
    return found


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    found = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system
    return found


def _threads(processes: Sequence[psutil.Process]) -> int | None:
    found = []
    for process in processes:
        try:
            found.append(process.num_threads())
        except psutil.NoSuchProcess:
            continue
    return max(found, default=None)
