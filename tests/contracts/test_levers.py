"""One suite for every lever: the law of contracts.Lever, on small models and a synthetic machine.

A lever that none of the welcoming cases suits fails the suite (a case must be added with it), unless a need of
its own is not met here; then it is skipped by the name of what is missing.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch_workload import Cnn, Mlp, candidate, counted, diagnosis, job_diagnosis, machine

from ironlaw import forms, registry
from ironlaw.contracts import Lever, No, Yes
from ironlaw.forms import files, openvino
from ironlaw.records import (
    Candidate,
    Change,
    Diagnosis,
    Goal,
    Machine,
    ModelFile,
    Objective,
    Prediction,
    digest_of,
    to_data,
)

LEVERS = registry.levers()
MODEL_CLAIMS = {"graph.structure", "weights.dtype", "activations.dtype", "weights.values"}
OPTION_CLAIMS = {
    "compile": "compiler", "freezing": "compiler", "mode": "compiler", "layout": "layout",
    "loader.workers": "loader.workers", "loader.prefetch": "loader.workers", "loader.persistent": "loader.workers",
    "loader.pinned": "loader.workers", "loader.sliced": "loader.reads", "loader.decoded": "loader.reads",
    "checkpointing": "activations.kept",
}  # fmt: skip
FIELD_CLAIMS = {
    "target": {"target"}, "threads": {"threads"}, "cpus": {"threads", "replicas"}, "replicas": {"replicas"},
    "batch": {"batch"}, "precision": {"compute.dtype"}, "variables": {"env.malloc"},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    candidate: Candidate
    diagnosis: Diagnosis
    machine: Machine


@pytest.fixture(scope="module")
def welcoming(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Cases in which every lever of ours is wanted somewhere."""
    root = tmp_path_factory.mktemp("welcoming")
    latency = candidate(root, Cnn(), goal=Goal())
    throughput = dataclasses.replace(latency, goal=Goal(objective=Objective.THROUGHPUT))
    size = dataclasses.replace(latency, goal=Goal(objective=Objective.SIZE))
    quick = machine()
    seen = counted(latency, compute=0.3, memory=0.2, latency=0.25, paging=0.2)
    cases = [Case(f"torch, {c.goal.objective}", c, seen, quick) for c in (latency, throughput, size)]
    job = job_diagnosis(seen.ledger.ops)
    memory = dataclasses.replace(latency, goal=Goal(objective=Objective.MEMORY))
    cases += [Case(f"training, {c.goal.objective}", c, job, quick) for c in (throughput, memory)]
    for target in ("onnxruntime", "openvino"):
        if target in registry.targets() and not registry.unmet(registry.targets()[target].needs):
            moved = forms.convert(latency, "onnx")
            execution = dataclasses.replace(moved.execution, target=target, threads=2)
            there = dataclasses.replace(moved, execution=execution)
            cases.append(Case(target, there, dataclasses.replace(seen, target=target, threads=2), quick))
    wide = candidate(root, Mlp(), torch.ones(1, 128), goal=Goal(objective=Objective.SIZE))
    cases.append(Case("linear layers, size", wide, counted(wide, memory=0.9), quick))
    return cases


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Cases in which a lever should see that it has nothing to give."""
    root = tmp_path_factory.mktemp("poor")
    here = candidate(root, Cnn(), goal=Goal())
    foreign = dataclasses.replace(here, execution=dataclasses.replace(here.execution, target="elsewhere"))
    strange = dataclasses.replace(foreign, model=dataclasses.replace(here.model, form="nothing-known"))
    idle = diagnosis(latency=0.99)
    return [
        Case("dispatch only, one core", here, idle, machine(cores=1, narrow=False, isa=())),
        Case("another target", foreign, dataclasses.replace(idle, target="elsewhere"), machine(cores=1, narrow=False)),
        Case(
            "a form of nobody", strange, dataclasses.replace(idle, target="elsewhere"), machine(cores=1, narrow=False)
        ),
    ]


@pytest.fixture(
    params=[pytest.param(n, marks=pytest.mark.slow) if LEVERS[n].consumes else n for n in LEVERS], ids=list(LEVERS)
)
def lever(request: pytest.FixtureRequest) -> Lever:
    return LEVERS[request.param]


@pytest.fixture
def case(lever: Lever, welcoming: list[Case]) -> Case:
    missing = registry.unmet(lever.needs, isa=machine().environment.identity.isa)
    if missing:
        pytest.skip(f"{lever.name}: {'; '.join(missing)}")
    answers = {}
    for one in welcoming:
        answers[one.name] = lever.applies(one.candidate, one.diagnosis, one.machine)
        if answers[one.name] and lever.options(one.candidate, one.diagnosis, one.machine):
            return one
    pytest.fail(f"no case suits {lever.name}: {answers}")


def applied(lever: Lever, one: Candidate, settings: object, folder: Path) -> tuple[Candidate, Change]:
    folder.mkdir(parents=True)
    if lever.consumes and one.model.form not in lever.consumes:
        form = forms.nearest(one.model.form, sorted(lever.consumes))
        assert form is not None
        one = forms.convert(one, form)
    return lever.apply(dataclasses.replace(one, workspace=str(folder)), settings)


def test_declares_its_facts(lever: Lever) -> None:
    assert lever.claims, "a lever that claims nothing changes nothing"
    assert lever.attacks
    assert lever.kinds
    assert len(lever.cites) > 10
    assert isinstance(lever, Lever)


def test_options_are_frozen_settings_with_a_cost(lever: Lever, case: Case) -> None:
    options = lever.options(case.candidate, case.diagnosis, case.machine)
    for option in options:
        assert isinstance(option.settings, lever.Settings)
        assert option.settings.__dataclass_params__.frozen
        assert all(
            isinstance(getattr(option.settings, f.name), str | int | float | bool | None)
            for f in dataclasses.fields(option.settings)
        )
        assert option.cost_s >= 0
    assert len({option.settings for option in options}) == len(options), "the same settings twice"


def test_predictions_are_ordered_intervals(lever: Lever, case: Case) -> None:
    for option in lever.options(case.candidate, case.diagnosis, case.machine):
        found = lever.predict(case.candidate, option.settings, case.diagnosis, case.machine)
        assert isinstance(found, Prediction)
        assert 0 < found.speedup.low <= found.speedup.value <= found.speedup.high < 1e4
        assert found.basis
        for interval in (found.size_bytes, found.memory_bytes):
            assert interval is None or 0 < interval.low <= interval.value <= interval.high
        to_data(found)  # raises on NaN or Inf


def test_apply_leaves_the_original_and_replays(lever: Lever, case: Case, tmp_path: Path) -> None:
    settings = lever.options(case.candidate, case.diagnosis, case.machine)[0].settings
    snapshot_folder = Path(case.candidate.snapshot.folder)
    before = (digest_of(case.candidate), files.digest_of(Path(case.candidate.model.path)))
    after, change = applied(lever, case.candidate, settings, tmp_path / "first")
    again, replay = applied(lever, case.candidate, settings, tmp_path / "second")
    assert before == (digest_of(case.candidate), files.digest_of(Path(case.candidate.model.path)))
    assert change == replay
    assert after.execution == again.execution
    assert _content(after.model) == _content(again.model)
    assert after.snapshot == case.candidate.snapshot
    assert not list(snapshot_folder.rglob("*.part")), "a conversion left its folder behind"
    written = Path(after.model.path)
    assert written.is_relative_to(tmp_path / "first") or written.is_relative_to(snapshot_folder)


def _content(model: ModelFile) -> str:
    """The digest; for an IR without the numbers that OpenVINO counts up in one process."""
    return openvino.digest(Path(model.path)) if model.path.endswith(".xml") else model.digest


def test_what_changed_was_claimed(lever: Lever, case: Case, tmp_path: Path) -> None:
    for i, option in enumerate(lever.options(case.candidate, case.diagnosis, case.machine)[:3]):
        after, change = applied(lever, case.candidate, option.settings, tmp_path / str(i))
        assert change.lever == lever.name
        assert change.version == lever.version
        assert set(change.claims) == set(lever.claims)
        assert after.changes[-1] == change
        assert lever.Settings(**dict(change.settings)) == option.settings, "what is recorded replays the option"
        unclaimed = _unclaimed(case.candidate, after, lever.claims)
        assert not unclaimed, f"{lever.name} changed {unclaimed} and claims {sorted(lever.claims)}"
        if not change.no_op:
            before = case.candidate
            assert after.execution != before.execution or after.model.digest != before.model.digest
        if "target" in lever.claims:
            assert after.execution.target in registry.targets()


def _unclaimed(before: Candidate, after: Candidate, claims: frozenset[str]) -> set[str]:
    """Fields and options that differ without a claim that covers them."""
    wrong = {
        name
        for name, needed in FIELD_CLAIMS.items()
        if getattr(before.execution, name) != getattr(after.execution, name) and not needed & claims
    }
    old, new = dict(before.execution.options), dict(after.execution.options)
    for key in {*old, *new}:
        if old.get(key) != new.get(key) and not {OPTION_CLAIMS.get(key, ""), "runtime.options", "target"} & claims:
            wrong.add(f"option {key}")
    converted = before.model.form != after.model.form
    if before.model.digest != after.model.digest and not converted and not MODEL_CLAIMS & claims:
        wrong.add("model")
    return wrong


def test_applied_again_is_a_no_op(lever: Lever, case: Case, tmp_path: Path) -> None:
    settings = lever.options(case.candidate, case.diagnosis, case.machine)[0].settings
    once, first = applied(lever, case.candidate, settings, tmp_path / "once")
    assert not first.no_op
    if "weights.dtype" in lever.claims or "activations.dtype" in lever.claims:
        pytest.skip("quantising what is quantised is refused by the claims")
    _, second = applied(lever, once, settings, tmp_path / "twice")
    assert second.no_op
    assert not second.facts


def test_rejects_with_a_reason(lever: Lever, poor: list[Case]) -> None:
    answers = [lever.applies(one.candidate, one.diagnosis, one.machine) for one in poor]
    assert all(isinstance(answer, Yes | No) for answer in answers)
    refusals = [answer for answer in answers if isinstance(answer, No)]
    assert refusals, f"{lever.name} wants even what it cannot help"
    assert all(len(answer.reason) > 10 for answer in refusals)


def test_no_lever_names_another() -> None:
    """Conflicts come from claims: the source of a lever holds no other lever's module."""
    import ironlaw.levers

    root = Path(ironlaw.levers.__file__).parent
    modules = {p.stem for p in root.glob("*/*.py") if p.stem != "__init__"}
    for path in root.glob("*/*.py"):
        text = path.read_text()
        imported = {m for m in modules - {path.stem} if f"levers.{path.parent.name}.{m}" in text}
        assert not imported, f"{path.name} imports {imported}"
