"""Candidates against the baseline in one round: fresh workers, interleaved blocks, the idle ones stopped.

A round is one launch of everything: the baseline, the baseline again (A against A, which shows what
this machine calls equal right now) and the candidates. Blocks go round A X1 X2 .. A' A X1 ..; a ratio
compares a block with the mean of the baseline's blocks before and after it, so that a drift of the
machine cancels. Several rounds give several launches; :mod:`ironlaw.measure.statistics` makes intervals.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ironlaw.measure.energy import counter
from ironlaw.measure.foreign import ForeignClock, Mark
from ironlaw.measure.process import Child, WorkerFailure
from ironlaw.records import Artefact, Outcome

BASELINE = "baseline"
SELF = "self"
FOREIGN_LIMIT = 0.15
"""A block during which others took more of the CPUs that it uses is not judged."""
KEPT_LATENCIES = 2000
_MODULES = {"training": "ironlaw.training_worker"}
"""Who runs an artefact of that kind."""
REQUESTS, LONGEST_BLOCK_S = 40, 1.0
"""Of a block under arrivals, where the rate allows it within that time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much measuring a round does: at most ``cycles`` blocks a unit within about ``round_s`` of blocks.

    ``against_self`` adds the baseline against itself. With ``rate_per_s`` a block serves requests that arrive at
    random instead of calling back to back, long enough for ``REQUESTS`` of them.
    """

    cycles: int
    block_s: float
    round_s: float
    min_calls: int = 2
    warm_limit_s: float = 6.0
    against_self: bool = True
    rate_per_s: float | None = None

    def at_rate(self, rate_per_s: float | None) -> Effort:
        """The same effort under arrivals at that rate."""
        if rate_per_s is None:
            return self
        block_s = min(LONGEST_BLOCK_S, max(self.block_s, REQUESTS / rate_per_s))
        return replace(self, rate_per_s=rate_per_s, block_s=block_s, round_s=self.round_s * block_s / self.block_s)

    def for_call(self, call_s: float, units: int) -> Effort:
        """The same effort where one call of the baseline takes ``call_s``: slow calls get fewer, shorter blocks."""
        calls = self.min_calls if call_s * self.min_calls <= 2 * self.block_s else 1
        one = units * max(self.block_s, calls * call_s)
        return replace(self, min_calls=calls, cycles=max(2, min(self.cycles, int(self.round_s / one))))


SHORT = Effort(cycles=4, block_s=0.08, round_s=6.0, against_self=False)
FULL = Effort(cycles=10, block_s=0.12, round_s=8.0, min_calls=3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One timed block of one unit. ``ns`` holds the calls of all replicas; ``calls`` their number.

    Under arrivals ``ns`` is from arrival to answer and ``service_ns`` holds the calls. ``energy_j`` is what the CPU
    packages took meanwhile; None without counters.
    """

    ns: tuple[int, ...]
    calls: int
    wall_s: float
    faults: int
    user_s: float
    system_s: float
    peak_memory_bytes: int
    foreign: float
    energy_j: float | None = None
    service_ns: tuple[int, ...] = ()

    @property
    def latency_s(self) -> float:
        return statistics.median(self.ns) / 1e9


@dataclass(kw_only=True, slots=True)
class Launch:
    """What one launch of one artefact gave: log ratios to the baseline, and its own numbers."""

    latency_ratios: list[float] = field(default_factory=list)
    throughput_ratios: list[float] = field(default_factory=list)
    energy_ratios: list[float] = field(default_factory=list)
    quiet: list[bool] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    services_s: list[float] = field(default_factory=list)
    calls: int = 0
    wall_s: float = 0.0
    faults: int = 0
    user_s: float = 0.0
    system_s: float = 0.0
    peak_memory_bytes: int = 0
    load_s: float = 0.0
    first_s: float = 0.0
    warmup_calls: int = 0
    warm: bool = True
    call_s: float = 0.0
    foreign: list[float] = field(default_factory=list)
    energy_j: float | None = None


class Unit:
    """An artefact with all its replicas, each a process on its share of the CPUs."""

    def __init__(self, artefact: Artefact, *, memory_limit_bytes: int | None, time_limit_s: float) -> None:
        self.artefact, self.time_limit_s = artefact, time_limit_s
        self._seed = 0
        self._children: list[Child] = []
        shares = _shares(artefact)
        for cpus in shares:
            child = Child(
                _MODULES.get(artefact.kind, "ironlaw.worker"),
                variables={**_thread_variables(artefact), **{k: str(v) for k, v in artefact.execution.variables}},
                cpus=cpus,
                memory_limit_bytes=memory_limit_bytes,
            )
            self._children.append(child)
        pids = [os.getpid(), *(child.pid for child in self._children)]
        self._clock = ForeignClock(pids, cpus=sorted({cpu for cpus in shares for cpu in cpus}))

    def start(self) -> Launch | None:
        """Begin to import the runtime; :meth:`started` waits for its end. Raises WorkerFailure."""
        for child in self._children:
            child.send("ready", name=self.artefact.target)
        return None

    def started(self) -> Launch | None:
        """Wait for the imports to end. Raises WorkerFailure."""
        for child in self._children:
            child.receive(self.time_limit_s)
        return None

    def load(self, warm_limit_s: float) -> Launch:
        """Load and warm up. Raises WorkerFailure; a model whose output is not finite is one."""
        from ironlaw.records import to_data

        answers = self._all("load", artefact=to_data(self.artefact))
        if not all(answer["finite"] for answer in answers):
            raise WorkerFailure(Outcome.NOT_FINITE, "the outputs on the example hold NaN or Inf")
        warm = self._all("warm", limit_s=warm_limit_s)
        self.pause()
        return Launch(
            load_s=max(a["load_s"] for a in answers),
            first_s=max(a["first_s"] for a in answers),
            warmup_calls=sum(w["calls"] for w in warm),
            warm=all(w["converged"] for w in warm),
            call_s=max(w["call_s"] for w in warm),
        )

    def block(self, effort: Effort) -> Block:
        joules = counter()
        before_j = joules() if joules else 0.0
        mark, start = self._clock.mark(), time.perf_counter()
        if effort.rate_per_s is None:
            answers = self._all("block", seconds=effort.block_s, min_calls=effort.min_calls)
        else:
            answers = self._arrivals(effort.block_s, effort.rate_per_s)
        together = len(answers) > 1 and effort.rate_per_s is None
        wall_s = time.perf_counter() - start if together else max(a["wall_s"] for a in answers)
        foreign = self._foreign(mark, answers)
        energy_j = joules() - before_j if joules else None
        self.pause()
        return Block(
            ns=tuple(n for a in answers for n in a["ns"]),
            calls=sum(len(a.get("service_ns", a["ns"])) for a in answers),
            wall_s=wall_s,
            faults=sum(a["faults"] for a in answers),
            user_s=sum(a["user_s"] for a in answers),
            system_s=sum(a["system_s"] for a in answers),
            peak_memory_bytes=sum(a["peak_memory_bytes"] for a in answers),
            foreign=foreign,
            energy_j=energy_j,
            service_ns=tuple(n for a in answers for n in a.get("service_ns", ())),
        )

    def ask_first(self, action: str, **arguments: Any) -> dict[str, Any]:
        return self._children[0].ask(action, timeout_s=self.time_limit_s, **arguments)

    def pause(self) -> None:
        for child in self._children:
            child.pause()

    def close(self) -> None:
        for child in self._children:
            child.close()

    def _foreign(self, mark: Mark, answers: Sequence[dict[str, Any]]) -> float:
        """What others took of these CPUs; the workers' own children are no others."""
        beside_s: float = sum(answer.get("beside_s", 0.0) for answer in answers)
        wall_s = max(time.perf_counter() - mark.wall_s, 1e-9)
        return max(0.0, self._clock.since(mark) - beside_s / (wall_s * len(self._clock.cpus)))

    def _arrivals(self, seconds: float, rate_per_s: float) -> list[dict[str, Any]]:
        """Requests dealt to the replicas at random: each sees arrivals at its share of the rate."""
        for child in self._children:
            self._seed += 1
            child.send("arrivals", seconds=seconds, rate_per_s=rate_per_s / len(self._children), seed=self._seed)
        return [child.receive(self.time_limit_s) for child in self._children]

    def _all(self, action: str, **arguments: Any) -> list[dict[str, Any]]:
        for child in self._children:
            child.send(action, **arguments)
        return [child.receive(self.time_limit_s) for child in self._children]


def round_of(
    baseline: Artefact,
    candidates: Mapping[str, Artefact],
    effort: Effort,
    *,
    memory_limit_bytes: int | None,
    time_limit_s: float,
) -> dict[str, Launch | WorkerFailure]:
    """One launch of the baseline, of itself again (``self``), and of every candidate, interleaved.

    Returns what each gave by name, ``baseline`` and ``self`` included; a candidate that fails is left
    out of the interleaving and its failure returned. Raises WorkerFailure when the baseline fails.
    """
    results: dict[str, Launch | WorkerFailure] = {}
    units: dict[str, Unit] = {}
    limits: dict[str, Any] = {"memory_limit_bytes": memory_limit_bytes, "time_limit_s": time_limit_s}
    with contextlib.ExitStack() as stack:
        own = {SELF: baseline} if effort.against_self else {}
        for name, artefact in {BASELINE: baseline, **candidates, **own}.items():
            units[name] = Unit(artefact, **limits)
            stack.callback(units[name].close)
        load = partial(Unit.load, warm_limit_s=effort.warm_limit_s)
        steps: tuple[Callable[[Unit], Launch | None], ...] = (Unit.start, Unit.started, load)
        for step in steps:
            for name, unit in list(units.items()):
                try:
                    results[name] = step(unit) or results.get(name) or Launch()
                except WorkerFailure as failure:
                    if name in (BASELINE, SELF):
                        raise
                    units.pop(name).close()
                    results[name] = failure
        launch = results[BASELINE]
        assert isinstance(launch, Launch)
        interleave(units, results, effort.for_call(launch.call_s, len(units)))
    return results


def interleave(units: dict[str, Unit], results: dict[str, Launch | WorkerFailure], effort: Effort) -> None:
    others = [name for name in units if name != BASELINE]
    previous: Block | None = None
    pending: list[tuple[str, Block]] = []
    for cycle in range(effort.cycles + 1):
        base = units[BASELINE].block(effort)
        launch = results[BASELINE]
        assert isinstance(launch, Launch)
        _add(launch, base)
        for name, block in pending:
            assert previous is not None
            _compare(results[name], block, previous, base, units[name].artefact, units[BASELINE].artefact)
        previous, pending = base, []
        if cycle == effort.cycles:
            return
        shift = cycle % max(1, len(others))
        for name in others[shift:] + others[:shift]:
            if isinstance(results[name], WorkerFailure):
                continue
            try:
                pending.append((name, units[name].block(effort)))
            except WorkerFailure as failure:
                if name == SELF:
                    raise
                results[name] = failure


def _compare(
    result: Launch | WorkerFailure, block: Block, before: Block, after: Block, own: Artefact, base: Artefact
) -> None:
    if isinstance(result, WorkerFailure):
        return
    _add(result, block)
    latency = (math.log(before.latency_s) + math.log(after.latency_s)) / 2
    rate = (math.log(before.calls / before.wall_s) + math.log(after.calls / after.wall_s)) / 2
    result.latency_ratios.append(latency - math.log(block.latency_s))
    more = math.log(own.execution.batch / base.execution.batch)
    result.throughput_ratios.append(math.log(block.calls / block.wall_s) + more - rate)
    if block.energy_j and before.energy_j and after.energy_j:
        spent = (math.log(before.energy_j / before.calls) + math.log(after.energy_j / after.calls)) / 2
        result.energy_ratios.append(spent + more - math.log(block.energy_j / block.calls))
    result.quiet.append(max(block.foreign, before.foreign, after.foreign) <= FOREIGN_LIMIT)


def _add(launch: Launch, block: Block) -> None:
    room = KEPT_LATENCIES - len(launch.latencies_s)
    launch.latencies_s.extend(n / 1e9 for n in block.ns[: max(0, room)])
    launch.services_s.extend(n / 1e9 for n in block.service_ns[: max(0, KEPT_LATENCIES - len(launch.services_s))])
    launch.calls += block.calls
    launch.wall_s += block.wall_s
    launch.faults += block.faults
    launch.user_s += block.user_s
    launch.system_s += block.system_s
    launch.peak_memory_bytes = max(launch.peak_memory_bytes, block.peak_memory_bytes)
    launch.foreign.append(block.foreign)
    if block.energy_j is not None:
        launch.energy_j = (launch.energy_j or 0.0) + block.energy_j


def _shares(artefact: Artefact) -> list[Sequence[int]]:
    """The CPUs of each replica: the execution's affinity, or all usable ones, dealt out in turn."""
    execution = artefact.execution
    usable = list(execution.cpus) or sorted(usable_cpus())
    if execution.replicas == 1:
        return [usable[: execution.threads] if execution.threads < len(usable) else usable]
    width = max(1, len(usable) // execution.replicas)
    return [usable[i * width % len(usable) :][:width] for i in range(execution.replicas)]


def usable_cpus() -> Sequence[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


def _thread_variables(artefact: Artefact) -> dict[str, str]:
    threads = str(artefact.execution.threads)
    return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
