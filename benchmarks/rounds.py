"""Arms interleaved in one run, exactly as the loop measures: rounds of fresh workers, the baseline twice in each.

A round is one launch of every arm and becomes one fact in the store, so that a killed benchmark goes on where it
was and the launches of two arms always belong to the same rounds. That is what makes the ratio of two arms a paired
one: in each cycle both were compared with the same blocks of the baseline, which cancel.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw import api
from ironlaw.bench import Bench, Limits, Subject
from ironlaw.loop import VERDICT_LAUNCHES
from ironlaw.machine.environment import environment
from ironlaw.measure.lock import machine_lock
from ironlaw.measure.paired import BASELINE, FULL, SELF, SHORT, Effort, Launch, round_of
from ironlaw.measure.process import WorkerFailure
from ironlaw.measure.statistics import gain_of
from ironlaw.measure.summary import QUIET_SHARE, floor_of, launch_data, launch_from
from ironlaw.metrics import Scores
from ironlaw.plan.space import Plan, Step
from ironlaw.records import Artefact, Gain, Goal, Machine, Objective, Outcome, Prediction, Scalar, UserError, exactly
from ironlaw.registry import levers
from ironlaw.session import Session, opened
from ironlaw.verify.quality import judge

Round = dict[str, Launch]
QUICK_LAUNCHES = 2
QUICK = dataclasses.replace(SHORT, against_self=True)
THOROUGH = dataclasses.replace(FULL, round_s=60.0)
"""The effort of a verdict; many arms in one round, some of them slow, need longer rounds for as many cycles."""
WORKER_SHARE = 0.6
"""Of the free memory, what the workers of one round may take together."""


def launches_of(quick: bool, asked: int | None = None) -> int:
    """Launches of each arm: those of a verdict."""
    return asked or (QUICK_LAUNCHES if quick else VERDICT_LAUNCHES)


@contextmanager
def session(workload: Any, goal: Goal, home: Path, talk: Callable[[str], None], *, ceilings: bool) -> Iterator[Session]:
    """A started session: the baseline is built and scored. Without ``ceilings`` the machine is known by name only."""
    know = known_machine if ceilings else unmeasured
    with opened(workload, goal, Limits(), know_machine=know, home=home, talk=talk) as made:
        made.bench.start()
        yield made


def unmeasured(**_: Any) -> Machine:
    """This host without its ceilings, for benchmarks that predict nothing."""
    return Machine(environment=environment(), ceilings=())


def known_machine(**given: Any) -> Machine:
    """The ceilings in this benchmark's store, else those that the user's own store holds, else measured now."""
    for home in (given["home"], None):
        try:
            return api.stored_machine(home)
        except UserError:
            continue
    return api.machine(**given)


def plan_of(steps: Sequence[tuple[str, Mapping[str, Scalar]]]) -> Plan:
    """Levers with settings as a plan; unnamed settings keep their defaults. Raises KeyError for an unknown lever."""
    made = []
    for name, settings in steps:
        lever = levers()[name]
        full = dataclasses.asdict(lever.Settings(**settings))
        made.append(Step(lever=name, version=lever.version, settings=tuple(sorted(full.items()))))
    return Plan(
        steps=tuple(made),
        predicted=Prediction(speedup=exactly(1.0), basis="given by the benchmark"),
        cost_s=0.0,
        family="benchmark",
    )


def built(bench: Bench, plan: Plan) -> Subject:
    """The subject of a plan, built; a failure is in ``subject.failure``."""
    subject = bench.subject(plan) if plan.steps else bench.baseline
    bench.build(subject)
    return subject


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """Rounds of all arms that worked, why the others did not, and the seconds that all of it took."""

    rounds: list[Round]
    failed: dict[str, str]
    spent_s: float


def measured(bench: Bench, arms: Mapping[str, Artefact], *, launches: int, effort: Effort, label: str) -> Taken:
    """``launches`` rounds of all arms; one that fails is in no round. Rounds that the store holds are not repeated."""
    names = {name: (artefact.folder, artefact.target) for name, artefact in arms.items()}
    text = json.dumps([label, names, dataclasses.asdict(effort)], sort_keys=True)
    key = f"{bench.baseline.key}:{hashlib.sha256(text.encode()).hexdigest()[:20]}"
    kept: list[dict[str, Any]] = bench.store.facts(key, "round")[:launches]
    failed = _failures(kept)
    while len(kept) < launches:
        alive = {name: artefact for name, artefact in arms.items() if name not in failed}
        found, seconds = _round(bench, alive, effort)
        kept.append({"arms": found, "seconds": seconds})
        bench.store.keep(key, "round", kept[-1])
        failed |= _failures(kept[-1:])
    return Taken(
        rounds=[{n: launch_from(d) for n, d in data["arms"].items() if n not in failed} for data in kept],
        failed=failed,
        spent_s=sum(data["seconds"] for data in kept),
    )


def ratio(
    rounds: Sequence[Round], one: str, other: str, objective: Objective = Objective.LATENCY, *, floor: float = 1.0
) -> Gain:
    """How many times better ``one`` is than ``other`` (``baseline`` is allowed), paired by round and cycle.

    ``settled`` asks that at least half of the pairs be free of foreign load, as verdicts do.
    """
    quiet = [_quiet(r, one, other) for r in rounds]
    settled = sum(map(sum, quiet)) >= QUIET_SHARE * sum(map(len, quiet))
    groups = []
    for found, calm in zip(rounds, quiet, strict=True):
        pairs = zip(_logs(found, one, objective, len(calm)), _logs(found, other, objective, len(calm)), strict=True)
        groups.append([a - b for (a, b), ok in zip(pairs, calm, strict=True) if ok or not settled])
    return gain_of([group for group in groups if group], floor=floor, settled=settled)


def floor(rounds: Sequence[Round], objective: Objective = Objective.LATENCY) -> float:
    """The smallest gain that may be claimed, from the baseline against itself in these rounds."""
    return floor_of([found[SELF] for found in rounds], objective)


def effort_of(quick: bool) -> Effort:
    """How much to measure in a round."""
    return QUICK if quick else THOROUGH


def groups_of(names: Sequence[str], always: Sequence[str], worker_bytes: int, free_bytes: int) -> list[list[str]]:
    """Arms dealt into groups that fit in memory together with ``always`` and the two baselines; at least one each."""
    room = int(WORKER_SHARE * free_bytes / max(1, worker_bytes)) - 2 - len(always)
    size = max(1, room)
    rest = [name for name in names if name not in always]
    count = max(1, -(-len(rest) // size))
    return [[*always, *rest[i::count]] for i in range(count)]


def quality(bench: Bench, goal: Goal, subject: Subject) -> tuple[bool, float | None, str]:
    """(within the budget, the metric, why), by the judge of every run; the subject must have been scored."""
    ours, theirs = subject.scores, bench.baseline.scores
    if not isinstance(ours, Scores) or not isinstance(theirs, Scores):
        return False, None, "no scores an example"
    found = judge(theirs, ours, goal)
    return found.within, found.value, found.reason


def _round(bench: Bench, arms: Mapping[str, Artefact], effort: Effort) -> tuple[dict[str, Any], float]:
    """What each arm gave, as data, and the seconds that it took without waiting for other runs."""
    assert bench.baseline.artefact is not None
    limits = bench.limits
    with machine_lock():
        start = time.monotonic()
        found = round_of(
            bench.baseline.artefact,
            arms,
            effort,
            memory_limit_bytes=limits.memory_bytes,
            time_limit_s=limits.trial_s,
        )
        seconds = time.monotonic() - start
    return {name: _data(result) for name, result in found.items()}, seconds


def _failures(kept: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {name: found["failure"] for data in kept for name, found in data["arms"].items() if "failure" in found}


def _data(result: Launch | WorkerFailure) -> dict[str, Any]:
    if isinstance(result, WorkerFailure):
        return {"failure": f"{Outcome(result.outcome)}: {result.reason}"}
    return launch_data(result)


def _logs(found: Round, name: str, objective: Objective, count: int) -> list[float]:
    if name == BASELINE:
        return [0.0] * count
    launch = found[name]
    return launch.throughput_ratios if objective == Objective.THROUGHPUT else launch.latency_ratios


def _quiet(found: Round, one: str, other: str) -> list[bool]:
    flags = [found[name].quiet for name in (one, other) if name != BASELINE]
    return [all(pair) for pair in zip(*flags, strict=True)]
