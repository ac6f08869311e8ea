"""Two workloads, paired: B runs on A's example and is judged by A's evaluate, in the same rounds as A."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw.bench import Bench, Subject
from ironlaw.judging import Judge
from ironlaw.loop import VERDICT_LAUNCHES
from ironlaw.measure.paired import FULL
from ironlaw.records import Goal, Trial, UserError
from ironlaw.session import Session, base_candidate
from ironlaw.workloads.inference import Inference


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two trials, paired: ``gain`` of B over A."""

    before: Trial
    after: Trial
    regression: bool
    reason: str


def paired_trials(
    session: Session, after: Any, data: str | Path | None, goal: Goal, talk: Callable[[str], None]
) -> tuple[Trial, Trial]:
    """(A, B) with B's gain over A and its quality on A's examples.

    Raises UserError when B takes other inputs than A, or cannot run at all.
    """
    from ironlaw.workloads.load import served
    from ironlaw.workloads.snapshot import snapshot

    mine = session.bench.workload
    assert isinstance(mine, Inference)
    theirs = served(after, data=data)
    theirs = dataclasses.replace(theirs, example=mine.example, evaluate=mine.evaluate, calibrate=mine.calibrate)
    taken = snapshot(theirs, session.store.folder("snapshots"), f"{after}")
    one, two = session.snapshot.inputs, taken.inputs
    if [(s.shape, s.dtype) for s in one] != [(s.shape, s.dtype) for s in two]:
        raise UserError(f"{after}", "takes other inputs than A", "Compare models that take the same inputs.")
    bench = session.bench
    bench.start()
    other = _build_other(session, taken, goal, talk)
    subject = dataclasses.replace(other, key=_key(bench.baseline, other))
    subject.launches = []
    while len(subject.launches) < VERDICT_LAUNCHES and subject.failure is None:
        talk(f"launch {len(subject.launches) + 1} of {VERDICT_LAUNCHES}")
        bench.measure([subject], FULL)
    bench.score(subject)
    judge = Judge(bench=bench, goal=goal)
    return judge.baseline(), judge.trial(subject)


def _build_other(session: Session, taken: Any, goal: Goal, talk: Callable[[str], None]) -> Subject:
    base = base_candidate(taken, goal)
    mine = session.bench
    bench = Bench(mine.store, mine.workload, mine.evaluate, mine.rebuild, base, "compare", mine.limits, talk)
    bench.build(bench.baseline)
    if bench.baseline.failure is not None:
        raise UserError("B", f"does not run: {bench.baseline.failure.reason}", "Run it on A's example yourself.")
    return dataclasses.replace(bench.baseline, scores=None, decisions=[], certificate=None)


def _key(one: Subject, two: Subject) -> str:
    return hashlib.sha256(f"{one.key}{two.key}".encode()).hexdigest()[:20]
