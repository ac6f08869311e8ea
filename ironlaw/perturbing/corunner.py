"""Bandwidth co-runner: another process streams memory on other cores while the workload's blocks are timed.

Only what waits for memory is slowed by it; how much it slows pure streams (one that reads, one that copies) and pure
arithmetic on the same processors turns the workload's slow-down into a share. Blocks with and without it alternate in
one process (the co-runner is stopped by signal between), so that launches do not differ. It needs a core that the
workload leaves free: where the workload has all cores, it is run on fewer and the answer is carried back by the
measured bandwidths. It refuses a single core, and says so where the co-runner cannot use up the bandwidth. A working
set that lives in the last-level cache is also slowed by eviction: then the answer is only an upper bound.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ironlaw.diagnose.shares import limit, roofs
from ironlaw.machine import procfs
from ironlaw.machine.bandwidth import dram_bytes, last_level_bytes
from ironlaw.measure import paired
from ironlaw.measure.lock import machine_lock
from ironlaw.measure.paired import BASELINE, Block, Effort, Launch, Unit, usable_cpus
from ironlaw.measure.process import Child, WorkerFailure
from ironlaw.measure.summary import launch_data, launch_from
from ironlaw.perturbing import case as rounds
from ironlaw.perturbing.case import Case, relative, settled, silent
from ironlaw.perturbing.fits import memory_share
from ironlaw.records import Artefact, Execution, Interval, Machine, Perturbation, Term

NAME = "co-runner"
FACT = "co-runner"
ALONE, BESIDE = BASELINE, "beside"
WORKLOAD, READ, COPY, ARITHMETIC = "workload", "read", "copy", "arithmetic"
GIVEN_UP = 4
"""Where all cores are in use, one in so many is given to the co-runner (at least one)."""
START_LIMIT_S = 60.0

Slowed = dict[str, dict[str, Launch]]
"""Workload, streams and arithmetic, each alone and beside the co-runner, of one launch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Processors of the workload and of the co-runner; no core has both."""

    own: tuple[int, ...]
    spare: tuple[int, ...]
    threads: int


def run(case: Case) -> tuple[Perturbation, ...]:
    """The share that bandwidth limits, against the memory term."""
    artefact = case.subject.artefact
    assert artefact is not None
    if artefact.execution.replicas > 1:
        return silent(NAME, Term.MEMORY, f"not done: {artefact.execution.replicas} replicas share the cores")
    place = placement(artefact.execution, usable_cpus(), lambda cpu: procfs.core_of(cpu, Path("/")))
    if place is None:
        return silent(NAME, Term.MEMORY, "not done: there is no second core on which a co-runner could stream")
    try:
        found = _launches(case, artefact, place)
    except WorkerFailure as failure:
        return silent(NAME, Term.MEMORY, f"not done: {failure.reason}")
    slow = {name: [relative(one[name][BESIDE]) for one in found] for name in (WORKLOAD, READ, COPY, ARITHMETIC)}
    words = ", ".join(f"{name} {statistics.mean(values):.2f}x" for name, values in slow.items())
    share = memory_share(slow[WORKLOAD], (slow[READ], slow[COPY]), slow[ARITHMETIC])
    if share is None:
        return silent(NAME, Term.MEMORY, f"cannot tell: streams are slowed hardly more than arithmetic ({words})")
    call_s = statistics.median(statistics.median(one[WORKLOAD][ALONE].latencies_s) for one in found)
    seconds = carried(share, call_s, case.machine, run_on=place.threads, of=case.diagnosis.threads)
    resident = roofs(case.machine, case.diagnosis.ledger, case.diagnosis.threads).resident
    evidence = f"slowed by a stream on {_cores(place)}: {words}; bandwidth limits {_percent(share)} of the time"
    if place.threads != case.diagnosis.threads:
        evidence += f" on {place.threads} threads"
    if resident:
        seconds = dataclasses.replace(seconds, low=0.0)
        evidence += "; at most: it lives in the last-level cache, from which the stream also evicts it"
    quiet = settled([launch for one in found for kind in one.values() for launch in kind.values() if launch.quiet])
    return (case.answer(NAME, Term.MEMORY, seconds, evidence, quiet=quiet),)


def placement(execution: Execution, usable: Sequence[int], core_of: Callable[[int], Hashable]) -> Placement | None:
    """Processors for both; None when the workload would have to share its only core."""
    cpus = list(execution.cpus) or sorted(usable)
    own = cpus[: execution.threads] if execution.threads < len(cpus) else cpus
    busy = {core_of(cpu) for cpu in own}
    free = [cpu for cpu in usable if core_of(cpu) not in busy]
    if free:
        return Placement(own=tuple(own), spare=tuple(free[: max(1, len(own))]), threads=execution.threads)
    cores = list(dict.fromkeys(core_of(cpu) for cpu in own))
    if len(cores) < 2:
        return None
    given = set(cores[-max(1, len(cores) // GIVEN_UP) :])
    kept = tuple(cpu for cpu in own if core_of(cpu) not in given)
    spare = tuple(cpu for cpu in own if core_of(cpu) in given)
    return Placement(own=kept, spare=spare, threads=min(execution.threads, len(kept)))


def carried(share: Interval, call_s: float, machine: Machine, *, run_on: int, of: int) -> Interval:
    """Memory seconds of a call on ``of`` threads from the share of one on ``run_on``.

    Traffic stays; bandwidth grows by what was measured here, or by anything up to the threads where it was not.
    """
    if run_on == of:
        return share.scaled(call_s)
    faster = Interval(low=1.0, value=(of / run_on) ** 0.5, high=of / run_on)
    before, doubt = limit(machine, "dram", threads=run_on)
    after, doubts = limit(machine, "dram", threads=of)
    if before is not None and after is not None and not (doubt or doubts):
        lowest, highest = after.low / before.high, after.high / before.low
        low, high = (min(faster.high, max(faster.low, one)) for one in (lowest, highest))
        faster = Interval(low=low, value=min(high, max(low, after.value / before.value)), high=high)
    return Interval(
        low=share.low * call_s / faster.high,
        value=share.value * call_s / faster.value,
        high=share.high * call_s / faster.low,
    )


class Beside(Unit):
    """A unit that was loaded, timed while the co-runner streams: the same processes, so that launches do not differ."""

    def __init__(self, unit: Unit, streamer: Child) -> None:
        self.artefact, self._unit, self._streamer = unit.artefact, unit, streamer

    def block(self, effort: Effort) -> Block:
        self._streamer.resume()
        try:
            return self._unit.block(effort)
        finally:
            self._streamer.pause()


def _launches(case: Case, artefact: Artefact, place: Placement) -> list[Slowed]:
    """The launches that the store has, and as many more as are missing."""
    store = case.bench.store
    found = [_from_data(data) for data in store.facts(case.subject.key, FACT)]
    while len(found) < rounds.LAUNCHES:
        with machine_lock(case.talk) as waited_s:
            case.bench.waited_s += waited_s
            found.append(_launch(case, artefact, place))
        store.keep(case.subject.key, FACT, _to_data(found[-1]))
    return found


def _launch(case: Case, artefact: Artefact, place: Placement) -> Slowed:
    from ironlaw.perturbing import references

    execution = dataclasses.replace(artefact.execution, threads=place.threads, cpus=place.own)
    total = dram_bytes(last_level_bytes(), len(place.spare))
    others = references.artefacts(case.bench.store.folder("work", "references"), execution, total)
    with Child("ironlaw.perturbing.streamer", cpus=place.spare) as streamer:
        streamer.ask("start", timeout_s=START_LIMIT_S, total_bytes=total, cpus=list(place.spare))
        streamer.pause()
        runs = {WORKLOAD: dataclasses.replace(artefact, execution=execution), **others}
        return {name: _alternated(case, one, streamer) for name, one in runs.items()}


def _alternated(case: Case, artefact: Artefact, streamer: Child) -> dict[str, Launch]:
    """One launch of an artefact, its blocks with and without the co-runner in turn. Raises WorkerFailure."""
    limits = case.bench.limits
    with ExitStack() as stack:
        unit = Unit(artefact, memory_limit_bytes=limits.memory_bytes, time_limit_s=limits.trial_s)
        stack.callback(unit.close)
        unit.start()
        unit.started()
        results: dict[str, Launch | WorkerFailure] = {ALONE: unit.load(rounds.EFFORT.warm_limit_s), BESIDE: Launch()}
        alone = results[ALONE]
        assert isinstance(alone, Launch)
        effort = rounds.EFFORT.for_call(alone.call_s, 2)
        paired.interleave({ALONE: unit, BESIDE: Beside(unit, streamer)}, results, effort)
    done = {}
    for name, result in results.items():
        if isinstance(result, WorkerFailure):
            raise result
        done[name] = result
    return done


def _to_data(slowed: Slowed) -> dict[str, dict[str, object]]:
    return {name: {side: launch_data(launch) for side, launch in sides.items()} for name, sides in slowed.items()}


def _from_data(data: dict[str, dict[str, dict[str, object]]]) -> Slowed:
    return {name: {side: launch_from(launch) for side, launch in sides.items()} for name, sides in data.items()}


def _cores(place: Placement) -> str:
    return f"{len(place.spare)} other core{'s' if len(place.spare) > 1 else ''}"


def _percent(share: Interval) -> str:
    return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"
