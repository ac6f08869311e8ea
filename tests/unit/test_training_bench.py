"""A training job measured as an artefact: the worker's actions, the trajectory, the verdict, what ships."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_workload import machine

from ironlaw import registry, training_artefact
from ironlaw.bench import Limits
from ironlaw.measure.paired import SHORT, Unit
from ironlaw.records import Candidate, Certificate, Execution, Goal, Objective, UserError, from_data, to_data
from ironlaw.store import Store
from ironlaw.training_bench import TrainingBench
from ironlaw.training_session import _candidate, _check, _packed
from ironlaw.verify.trained import Trained, judge
from ironlaw.workloads.parcel import identity
from ironlaw.workloads.training import Training


def training(*, noise: float = 0.0, evaluate: bool = True, precision: str = "fp32") -> Training:
    torch.manual_seed(0)
    x = torch.randn(96, 6)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)
    )

    def accuracy(model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(x).argmax(1) == y).float().mean())

    def data() -> DataLoader:
        return DataLoader(TensorDataset(x + noise * torch.rand_like(x), y), batch_size=16, shuffle=True)

    return Training(
        model,
        data,
        nn.functional.cross_entropy,
        lambda parameters: torch.optim.SGD(parameters, lr=0.05),
        evaluate=accuracy if evaluate else None,
        metric="accuracy",
        steps=30,
        precision=precision,
        name="small",
    )


@pytest.fixture
def opened(tmp_path: Path):
    """A bench over a packed job whose baseline is built; nothing is measured."""
    made = []

    def make(job: Training) -> TrainingBench:
        store = Store(tmp_path / "store")
        folder = _packed(job, store.folder("jobs"))
        base = _candidate(job, folder, Execution(threads=1, batch=16), Goal(objective=Objective.THROUGHPUT))
        judged_by = identity(job.evaluate) or "?"
        bench = TrainingBench(store, job, base, machine(), "here", Limits(), lambda line: None, judged_by=judged_by)
        bench.build(bench.baseline)
        made.append(store)
        return bench

    yield make
    for store in made:
        store.close()


def with_options(bench: TrainingBench, **options: object) -> Candidate:
    return replace(bench.base, execution=bench.base.execution.with_options(**options))


def compared(bench: TrainingBench, candidate: Candidate) -> Trained:
    folder = bench.store.folder("artefacts") / "other"
    artefact = training_artefact.write(candidate, folder, weights_bytes=1)
    subject = replace(bench.baseline, key="other", candidate=candidate, artefact=artefact, scores=None)
    bench._score(bench.baseline)
    bench._score(subject)
    assert subject.failure is None, subject.failure
    assert isinstance(subject.scores, Trained)
    return subject.scores


def _wait_until(holds, limit_s=5.0):
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_step_is_a_call_and_blocks_are_timed(opened):
    bench = opened(training())
    unit = Unit(bench.baseline.artefact, memory_limit_bytes=None, time_limit_s=60)
    try:
        unit.start()
        unit.started()
        launch = unit.load(warm_limit_s=0.3)
        assert launch.call_s > 0
        block = unit.block(SHORT)
        assert block.calls == len(block.ns) >= 2
        assert block.wall_s >= sum(block.ns) / 1e9
        found = from_data(Certificate, unit.ask_first("certify")["certificate"])
        assert (found.eligible, found.converted, found.threads) == (3, 0, 1)
    finally:
        unit.close()


@pytest.mark.slow
def test_loader_workers_stand_still_with_their_process(opened):
    bench = opened(training())
    candidate = with_options(bench, **{"loader.workers": 1, "loader.persistent": True})
    folder = bench.store.folder("artefacts") / "workers"
    unit = Unit(training_artefact.write(candidate, folder, weights_bytes=1), memory_limit_bytes=None, time_limit_s=60)
    try:
        unit.start()
        unit.started()
        unit.load(warm_limit_s=0.3)
        (process,) = psutil.Process(unit._children[0].pid).children()
        _wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
        assert unit.block(SHORT).calls >= 2
        _wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
    finally:
        unit.close()
    _wait_until(lambda: not process.is_running())


@pytest.mark.slow
def test_the_same_steps_are_seen_to_be_the_same(opened):
    bench = opened(training(evaluate=False))
    found = compared(bench, with_options(bench, checkpointing=True))
    assert found.apart < 1e-5
    assert found.same


@pytest.mark.slow
def test_sliced_batches_train_the_same(opened):
    bench = opened(training(evaluate=False))
    assert compared(bench, with_options(bench, **{"loader.sliced": True})).apart < 1e-6


@pytest.mark.slow
def test_other_arithmetic_is_judged_by_trained_models(opened):
    bench = opened(training())
    bench.baseline.launches = []
    candidate = replace(bench.base, execution=replace(bench.base.execution, precision="bf16"))
    bench._step_s = lambda: 0.001  # type: ignore[method-assign]
    found = compared(bench, candidate)
    assert found.apart > 1e-3
    assert found.apart_on_same > 1e-3
    assert len(found.values) == 5
    assert min(found.values) > 0.7
    assert len(bench.baseline.scores.values) == 5


@pytest.mark.slow
def test_other_batches_are_told_from_other_arithmetic(opened):
    bench = opened(training(noise=0.5, evaluate=False))
    bench._score(bench.baseline)
    folder = bench.store.folder("artefacts") / "two"
    candidate = replace(bench.base, execution=replace(bench.base.execution, threads=1))
    artefact = training_artefact.write(candidate, folder, weights_bytes=1)
    subject = replace(bench.baseline, key="two", candidate=candidate, artefact=artefact, scores=None)
    path = Path(bench.base.snapshot.folder)
    before, after = bench._steps(bench.baseline, own=True)
    again = bench._steps(subject, own=False)[1]
    np.testing.assert_allclose(again, after, rtol=0, atol=1e-6 * np.linalg.norm(after - before))
    assert (path / "batches.pkl").exists()


def test_judging():
    goal, base = Goal(objective=Objective.THROUGHPUT), Trained(apart=0, apart_on_same=0, values=(0.9, 0.91, 0.92))
    same = judge("accuracy", True, base, Trained(apart=1e-6, apart_on_same=1e-6), goal)
    assert (same.within, same.drop) == (True, 0.0)
    ours = Trained(apart=0.02, apart_on_same=0.02, values=(0.899, 0.911, 0.919))
    close = judge("accuracy", True, base, ours, goal)
    # drops 0.001, -0.001, 0.001: mean 0.000333, sd 0.0011547, t(0.975, 2) = 4.302653
    assert close.drop == pytest.approx(0.000333, abs=1e-6)
    assert close.high == pytest.approx(0.000333 + 4.302653 * 0.0011547 / 3**0.5, abs=1e-5)
    assert close.within
    worse = judge("accuracy", True, base, replace(ours, values=(0.88, 0.9, 0.91)), goal)
    assert not worse.within
    lower_is_better = judge("loss", False, base, replace(ours, values=(0.88, 0.9, 0.91)), goal)
    assert lower_is_better.drop == pytest.approx(-0.01333, abs=1e-4)
    unproven = judge("accuracy", True, base, Trained(apart=0.5, apart_on_same=1e-7), goal)
    assert not unproven.within
    assert "batches differ" in unproven.reason
    assert "arithmetic differ" in judge("a", True, base, Trained(apart=0.5, apart_on_same=0.1), goal).reason


@pytest.mark.slow
def test_the_same_job_has_the_same_identity_in_another_process(tmp_path):
    code = "from ironlaw.workloads.parcel import identity; from ironlaw.workloads.load import given; "
    code += "print(identity(given('demo:digits-training')))"
    seen = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(seen) == 1
    assert "None" not in seen.pop()
    assert identity(training()) == identity(training())
    assert identity(training()) != identity(replace(training(), steps=31))


def test_what_ships_runs_without_ironlaw(opened, tmp_path):
    bench = opened(training())
    execution = replace(bench.base.execution, precision="bf16").with_options(
        checkpointing=True, **{"loader.workers": 2, "loader.persistent": True, "loader.decoded": True}
    )
    folder = tmp_path / "artefact"
    artefact = training_artefact.write(replace(bench.base, execution=execution), folder, weights_bytes=1)
    assert sorted(path.name for path in folder.iterdir()) == sorted(artefact.files)
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["loader"] == {"decoded": True, "persistent": True, "workers": 2}
    (folder / "run.py").write_text(artefact.snippet + "\nassert outputs[0].isfinite().all()\n")
    code = "import sys, runpy; sys.modules['ironlaw'] = None; sys.path.insert(0, '.'); runpy.run_path('run.py')"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "goal", [Goal(), Goal(objective=Objective.THROUGHPUT, p99_s=1.0), Goal(objective=Objective.MEMORY, target="torch")]
)
def test_goals_that_a_job_has_not(goal):
    with pytest.raises(UserError):
        _check(goal)


def test_levers_of_jobs_are_of_jobs_only():
    from ironlaw.records import Kind

    found = {name for name, lever in registry.levers().items() if Kind.TRAINING in lever.kinds}
    loading = {"decoded_samples", "loader_workers", "sliced_batches"}
    assert found == loading | {"allocator", "checkpointing", "mixed_precision", "threads"}


def test_records_travel():
    trained = Trained(apart=0.1, apart_on_same=0.2, values=(0.5,), note="why")
    assert from_data(Trained, json.loads(json.dumps(to_data(trained)))) == trained
