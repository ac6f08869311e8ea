"""Two models, paired: B runs on A's example and is judged by A's evaluate, in the same rounds as A.

B is another workload, or what was made before: a packaged folder, the best point of a run.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw.bench import BASELINE_PLAN, Bench, Subject
from ironlaw.deploy.package import is_package, read_package
from ironlaw.judging import Judge
from ironlaw.loop import VERDICT_LAUNCHES
from ironlaw.measure.paired import FULL
from ironlaw.records import Goal, Shown, TensorSpec, Trial, UserError, digest_of
from ironlaw.session import Session, base_candidate
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.load import is_workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison(Shown):
    """Two trials, paired: ``gain`` of B over A."""

    before: Trial
    after: Trial
    regression: bool
    reason: str


def paired_trials(
    session: Session, after: Any, data: str | Path | None, goal: Goal, talk: Callable[[str], None]
) -> tuple[Trial, Trial]:
    """(A, B) with B's gain over A and its quality on A's examples.

    B is a workload, a folder that ``deploy`` wrote, or a run of this store (its best point). Raises UserError when B
    takes other inputs than A, or cannot run at all.
    """
    bench = session.bench
    other = _shipped(session, after) or _build_other(session, after, data, goal, talk)
    assert other.artefact is not None
    if not _alike(session.snapshot.inputs, other.artefact.inputs):
        raise UserError(f"{after}", "takes other inputs than A", "Compare models that take the same inputs.")
    mine, theirs = bench.base.execution.batch, other.artefact.execution.batch
    if mine != theirs:
        raise UserError(
            f"{after}", f"takes {theirs} examples a call, A takes {mine}", "Give A an example of that batch."
        )
    bench.start()
    subject = dataclasses.replace(other, key=_key(bench.baseline, other), launches=[])
    while len(subject.launches) < VERDICT_LAUNCHES and subject.failure is None:
        talk(f"launch {len(subject.launches) + 1} of {VERDICT_LAUNCHES}")
        bench.measure([subject], FULL)
    bench.score(subject)
    judge = Judge(bench=bench, goal=goal)
    return judge.baseline(), judge.trial(subject)


def _alike(one: Sequence[TensorSpec], two: Sequence[TensorSpec]) -> bool:
    """Whether both take the same, whatever the batch."""

    def shapes(specs: Sequence[TensorSpec]) -> list[tuple[tuple[int, ...], str]]:
        return [(spec.shape[1:] if spec.batched else spec.shape, spec.dtype) for spec in specs]

    return shapes(one) == shapes(two)


def _shipped(session: Session, after: Any) -> Subject | None:
    """What was made before: a package, or the best point of a run; None when ``after`` is a workload."""
    if not isinstance(after, str | Path) or is_workload(str(after)):
        return None
    if is_package(Path(after)):
        artefact, name = read_package(Path(after)), "package"
    else:
        trial = session.store.run(str(after)).best_trial
        if trial.artefact is None or not Path(trial.artefact.folder).exists():
            raise UserError(f"run {after}", "has no artefact any more", "Run the same `ironlaw tune` again.")
        artefact, name = trial.artefact, trial.id
    candidate = dataclasses.replace(session.bench.base, execution=artefact.execution)
    key = digest_of((name, artefact.folder, artefact.files, artefact.size_bytes))
    return Subject(plan=BASELINE_PLAN, key=key, candidate=candidate, artefact=artefact)


def _build_other(
    session: Session, after: Any, data: str | Path | None, goal: Goal, talk: Callable[[str], None]
) -> Subject:
    """B from its workload, on A's example."""
    from ironlaw.workloads.load import served
    from ironlaw.workloads.snapshot import snapshot

    mine = session.bench.workload
    assert isinstance(mine, Inference)
    theirs = served(after, data=data)
    theirs = dataclasses.replace(theirs, example=mine.example, evaluate=mine.evaluate, calibrate=mine.calibrate)
    taken = snapshot(theirs, session.store.folder("snapshots"), f"{after}")
    base = base_candidate(taken, goal)
    bench = session.bench
    own = Bench(bench.store, bench.workload, bench.evaluate, bench.rebuild, base, "compare", bench.limits, talk)
    own.build(own.baseline)
    if own.baseline.failure is not None:
        raise UserError("B", f"does not run: {own.baseline.failure.reason}", "Run it on A's example yourself.")
    return dataclasses.replace(own.baseline, scores=None, decisions=[], certificate=None)


def _key(one: Subject, two: Subject) -> str:
    return hashlib.sha256(f"{one.key}{two.key}".encode()).hexdigest()[:20]
