"""How much of this machine's CPU time others took while we measured.

A sample taken beside a busy neighbour says something about the neighbour. So each sample carries the
fraction of CPU time that was neither idle nor ours: busy time from ``/proc/stat`` (with steal, the
time that the hypervisor gave to other guests) less the exact CPU clocks of our own processes. The
kernel counts busy time in ticks of 10 ms, so short windows are coarse: :meth:`ForeignClock.resolution`
says how coarse, and no more is claimed. Only the processors that we may use are watched, since a
neighbour elsewhere takes none of our time. Where there is no ``/proc/stat``, psutil answers.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_COUNTED = (0, 1, 2, 5, 6, 7)
"""Fields of a ``cpuN`` line that are busy: user, nice, system, irq, softirq, steal; guest is in user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """One reading: wall clock, busy time of the watched processors, own CPU time by process."""

    wall_s: float
    busy_s: float
    own_s: tuple[float, ...]


class ForeignClock:
    """Reads the CPU time that processes other than ``pids`` take.

    ``pids`` defaults to this process and counts its finished children in; a process given must run
    on ``cpus`` (default: the processors that the caller may use). A process that has ended keeps its
    last reading, so what it used after that counts as foreign: mark before it ends.

    >>> clock = ForeignClock()
    >>> mark = clock.mark()
    >>> 0.0 <= clock.since(mark) <= 1.0
    True
    """

    def __init__(
        self,
        pids: Iterable[int] | None = None,
        *,
        cpus: Sequence[int] | None = None,
        stat: Path = Path("/proc/stat"),
    ) -> None:
        self.pids = (os.getpid(),) if pids is None else tuple(dict.fromkeys(pids))
        self.cpus = tuple(sorted(cpus)) if cpus is not None else _allowed()
        self._last = dict.fromkeys(self.pids, 0.0)
        self._busy = _busy_reader(stat, self.cpus)

    def mark(self) -> Mark:
        """A reading to measure from; costs some 20 us."""
        return Mark(wall_s=time.perf_counter(), busy_s=self._busy(), own_s=tuple(self._own(p) for p in self.pids))

    def since(self, mark: Mark) -> float:
        """The fraction of the watched processors' time that others took since ``mark``, from 0 to 1."""
        now = self.mark()
        own = sum(after - before for after, before in zip(now.own_s, mark.own_s, strict=True))
        capacity = (now.wall_s - mark.wall_s) * len(self.cpus)
        if capacity <= 0.0:
            return 0.0
        return min(1.0, max(0.0, (now.busy_s - mark.busy_s - own) / capacity))

    def resolution(self, mark: Mark) -> float:
        """The smallest fraction that the window since ``mark`` can tell: one tick of each processor."""
        wall = time.perf_counter() - mark.wall_s
        return min(1.0, _tick_s() / wall) if wall > 0.0 else 1.0

    def _own(self, pid: int) -> float:
        with contextlib.suppress(ProcessLookupError):  # it has ended: its last reading stays
            self._last[pid] = _process_cpu_s(pid)
        return self._last[pid]


def busy_seconds(stat: str, cpus: Sequence[int], tick_s: float) -> float:
    """Busy seconds of these processors from the text of ``/proc/stat``; one that is offline counts none."""
    wanted = {f"cpu{n}" for n in cpus}
    ticks = 0
    for line in stat.splitlines():
        if not line.startswith("cpu"):
            break
        name, *fields = line.split()
        if name in wanted:
            ticks += sum(int(fields[n]) for n in _COUNTED if n < len(fields))
    return ticks * tick_s


def _busy_reader(stat: Path, cpus: Sequence[int]) -> Callable[[], float]:
    if not stat.exists():
        return lambda: _psutil_busy(cpus)
    tick, size = _tick_s(), 512 + 160 * (os.cpu_count() or 1)

    def read() -> float:
        descriptor = os.open(stat, os.O_RDONLY)
        try:
            return busy_seconds(os.read(descriptor, size).decode(), cpus, tick)
        finally:
            os.close(descriptor)

    return read


def _psutil_busy(cpus: Sequence[int]) -> float:
    import psutil

    every = psutil.cpu_times(percpu=True)
    kinds = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(every[n], kind, 0.0) for n in cpus if n < len(every) for kind in kinds))


def _process_cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process; of this one with its finished children."""
    if pid == os.getpid():
        children = os.times()
        return time.process_time() + children.children_user + children.children_system
    if hasattr(os, "sched_getaffinity"):  # Linux: the clock id of another process, clock_getcpuclockid(3)
        try:
            return time.clock_gettime((~pid << 3) | 2)
        except OSError as error:
            raise ProcessLookupError(pid) from error
    return _psutil_process(pid)


def _psutil_process(pid: int) -> float:
    import psutil

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(pid) from error
    return float(times.user + times.system)


def _allowed() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _tick_s() -> float:
    return 1.0 / os.sysconf("SC_CLK_TCK")
