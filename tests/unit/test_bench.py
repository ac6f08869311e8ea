"""What the bench knows from the store: builds are shared between goals, launches under arrivals are not."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from ironlaw.bench import Bench, Limits
from ironlaw.measure.paired import Launch
from ironlaw.measure.process import WorkerFailure
from ironlaw.measure.summary import launch_data
from ironlaw.records import (
    Artefact,
    Candidate,
    Execution,
    Goal,
    Kind,
    ModelFile,
    Objective,
    Outcome,
    Snapshot,
    TensorSpec,
    to_data,
)
from ironlaw.store import Store

SPEC = TensorSpec(name="x", shape=(1, 8), dtype="float32")
MODEL = ModelFile(form="eager", path="m.pkl", digest="d")
SNAPSHOT = Snapshot(
    digest="s", kind=Kind.INFERENCE, name="n", folder="f", model=MODEL, inputs=(SPEC,), outputs=(SPEC,), batch=1,
    dynamic=True, parameters=1, weights_bytes=4,
)  # fmt: skip

USUAL = Limits()


def bench(store: Store, goal: Goal, limits: Limits = USUAL) -> Bench:
    base = Candidate(snapshot=SNAPSHOT, model=MODEL, execution=Execution(threads=2), goal=goal)
    nothing: Any = None
    return Bench(store, nothing, nothing, nothing, base, "machine", limits, lambda line: None)


def keep_baseline(store: Store, goal: Goal, folder: Path) -> Bench:
    """A bench whose baseline was built, as the store has it."""
    made = bench(store, goal)
    artefact = Artefact(
        kind="recipe", folder=str(folder), files=(), target="torch", execution=made.base.execution, inputs=(SPEC,),
        outputs=(SPEC,), snippet="", size_bytes=1,
    )  # fmt: skip
    build = {"candidate": to_data(made.base), "artefact": to_data(artefact), "seconds": 1.0}
    store.keep(made.baseline.key, "build", build)
    return made


def test_what_was_built_for_another_goal_serves_this_one(tmp_path: Path) -> None:
    """A lever asks the candidate for the goal: one that said latency would refuse batching for throughput."""
    with Store(tmp_path) as store:
        keep_baseline(store, Goal(), tmp_path)
        goal = Goal(objective=Objective.THROUGHPUT)
        candidate = bench(store, goal).baseline.candidate
    assert candidate is not None
    assert candidate.goal == goal


def test_launches_under_arrivals_are_apart(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        made = keep_baseline(store, Goal(), tmp_path)
        store.keep(made.baseline.key, "launch", launch_data(Launch(calls=7)))
        store.keep(made.baseline.key, "launch at 200/s", launch_data(Launch(calls=9)))
        calls = [
            [launch.calls for launch in bench(store, dataclasses.replace(Goal(), rate_per_s=rate)).baseline.launches]
            for rate in (None, 200.0, 300.0)
        ]
    assert calls == [[7], [9], []]


@pytest.mark.parametrize(
    ("outcome", "now", "tried_again"),
    [
        (Outcome.HUNG, Limits(trial_s=10.0, memory_bytes=100), False),
        (Outcome.HUNG, Limits(trial_s=20.0, memory_bytes=100), True),
        (Outcome.HUNG, Limits(trial_s=5.0, memory_bytes=None), False),
        (Outcome.OUT_OF_MEMORY, Limits(trial_s=20.0, memory_bytes=100), False),
        (Outcome.OUT_OF_MEMORY, Limits(trial_s=10.0, memory_bytes=200), True),
        (Outcome.OUT_OF_MEMORY, Limits(trial_s=10.0, memory_bytes=None), True),
        (Outcome.CRASHED, Limits(trial_s=20.0, memory_bytes=None), False),
    ],
)
def test_what_failed_at_a_limit_is_tried_again_when_it_is_raised(
    tmp_path: Path, outcome: Outcome, now: Limits, tried_again: bool
) -> None:
    with Store(tmp_path) as store:
        made = bench(store, Goal(), Limits(trial_s=10.0, memory_bytes=100))
        made._fail(made.baseline, WorkerFailure(outcome, "why"), time.monotonic())
        failure = bench(store, Goal(), now).baseline.failure
    assert (failure is None) == tried_again
