"""What the bench knows from the store: builds are shared between goals, launches under arrivals are not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ironlaw.bench import Bench, Limits
from ironlaw.measure.paired import Launch
from ironlaw.measure.summary import launch_data
from ironlaw.records import (
    Artefact,
    Candidate,
    Execution,
    Goal,
    Kind,
    ModelFile,
    Objective,
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


def bench(store: Store, goal: Goal) -> Bench:
    base = Candidate(snapshot=SNAPSHOT, model=MODEL, execution=Execution(threads=2), goal=goal)
    nothing: Any = None
    return Bench(store, nothing, nothing, nothing, base, "machine", Limits(), lambda line: None)


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
