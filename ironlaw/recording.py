"""The run as a record: verdicts, frontier, best point, account."""

from __future__ import annotations

import dataclasses
import datetime

from ironlaw import account
from ironlaw.judging import TIMED
from ironlaw.laws.pareto import front
from ironlaw.loop import Loop
from ironlaw.machine.environment import environment
from ironlaw.records import Forecast, Goal, Outcome, Run, Trial, digest_of
from ironlaw.session import Session
from ironlaw.verify.outcome import limits_broken


def record(session: Session, loop: Loop, goal: Goal) -> Run:
    """The run as a record: verdicts, frontier, best, account."""
    judge = loop.judge
    baseline, trials = judge.baseline(), loop.trials()
    proven = [t for t in trials if t.outcome == Outcome.IMPROVED]
    assert baseline.measured is not None
    keeps = not limits_broken(goal, baseline.measured) and goal.target in (None, baseline.execution.target)
    keeps = keeps and (baseline.quality is None or baseline.quality.within)
    best = _best(proven) or baseline
    satisfied = best is not baseline or keeps
    usable = [baseline, *(t for t in trials if t.measured and t.quality and not t.outcome.failed)]
    frontier = tuple(usable[i].id for i in front([_coordinates(t) for t in usable]))
    assert loop.diagnosis is not None
    leader = next((s for s in loop.subjects.values() if s.key == best.id), None)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run = Run(
        id=digest_of(
            (session.snapshot.digest, goal, session.machine.environment.identity.digest, sorted(loop.space.levers))
        )[:12],
        created=now,
        name=session.snapshot.name,
        goal=goal,
        environment=environment(),
        machine=session.machine,
        baseline=baseline,
        diagnosis=loop.diagnosis,
        trials=tuple(sorted(trials, key=lambda t: -(t.gain.median if t.gain else 0.0))),
        frontier=frontier,
        best=best.id,
        refused=loop.refusals(),
        account=(),
        floor=judge.floor,
        satisfied=satisfied,
        best_diagnosis=loop.examine(leader) if leader is not None else None,
        spent_s=loop.time_limit_s - loop.left_s,
    )
    return dataclasses.replace(run, account=account.words_of(run, loop.found()))


TIE = 0.98
"""Points within this ratio of the fastest count as equal: the one with the fewest changes is chosen."""


def _best(proven: list[Trial]) -> Trial | None:
    gains = {t.id: t.gain.median for t in proven if t.gain}
    close = [t for t in proven if gains[t.id] >= TIE * max(gains.values())]
    return min(close, key=lambda t: (len(t.changes), -gains[t.id]), default=None)


def _coordinates(trial: Trial) -> tuple[float, ...]:
    """All to be minimised: time relative to the baseline, drop, size, memory."""
    assert trial.measured is not None
    assert trial.quality is not None
    gain = trial.gain.median if trial.gain else 1.0
    drop = trial.quality.drop or 0.0
    return (1.0 / gain, max(0.0, drop), float(trial.measured.size_bytes), float(trial.measured.peak_memory_bytes))


def keep_score(session: Session, loop: Loop, key: str) -> None:
    """Store the prediction of one trial beside what was measured, where the goal is one that levers predict."""
    subject, goal = loop.subjects[key], session.goal
    measured = loop.judge.screened(subject)
    if measured is None or subject.candidate is None or not subject.plan.steps:
        return
    if goal.objective not in TIMED or goal.rate_per_s is not None:
        return
    step, predicted = subject.plan.steps[-1], subject.plan.predicted
    session.store.keep_forecast(
        key,
        Forecast(
            lever=step.lever,
            version=step.version,
            kind=str(session.snapshot.kind),
            target=subject.candidate.execution.target,
            low=predicted.speedup.low,
            value=predicted.speedup.value,
            high=predicted.speedup.high,
            widened=predicted.widened,
            measured=measured,
            workload=session.snapshot.digest,
        ),
    )
