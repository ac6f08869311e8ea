"""A measured subject becomes a diagnosis with its silent killers, from what a real worker sees in its model."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_workload
from torch.nn.utils import prune

from ironlaw.bench import BASELINE_PLAN, Bench, Subject
from ironlaw.examining import examined
from ironlaw.measure.ledger import ledger_of
from ironlaw.measure.paired import Launch
from ironlaw.measure.process import WorkerFailure
from ironlaw.records import Candidate, Diagnosis, Inspection, Ledger, Op, Outcome, from_data, to_data
from ironlaw.store import Store
from ironlaw.targets.torch import Torch
from ironlaw.worker import Worker


class InProcess:
    """A bench whose worker is an object in this process; nothing is stored or timed for real."""

    def __init__(self, worker: Worker, *, fails: bool = False) -> None:
        self.worker, self.fails = worker, fails

    def ledger(self, candidate: Candidate, cache_bytes: int | None) -> Ledger:
        return ledger_of(candidate.snapshot.model, candidate.snapshot, 1, cache_bytes=cache_bytes)

    def profile(self, subject: Subject) -> tuple[Op, ...]:
        if self.fails:
            raise WorkerFailure(Outcome.CRASHED, "no profile today")
        return tuple(from_data(Op, op) for op in self.worker.profile(2)["ops"])

    def inspect(self, subject: Subject) -> Inspection | None:
        seen = self.worker.inspect()["inspection"]
        return None if seen is None else from_data(Inspection, seen)


def diagnosed(folder: Path, model: torch.nn.Module, *, fails: bool = False) -> tuple[Diagnosis, list[str]]:
    of = torch_workload.candidate(folder / "store", model)
    artefact = Torch().export(of, folder / "artefact")
    worker = Worker()
    assert worker.load(to_data(artefact))["finite"]
    took = Launch(latencies_s=[5e-3] * 20, calls=20, wall_s=0.1, user_s=0.1, foreign=[0.0], call_s=5e-3)
    subject = Subject(plan=BASELINE_PLAN, key="k", candidate=of, artefact=artefact, launches=[took])
    said: list[str] = []
    bench: Any = InProcess(worker, fails=fails)
    return examined(bench, subject, torch_workload.machine(), said.append), said


def masked() -> torch.nn.Module:
    model = torch_workload.Cnn()
    for layer in (model.stem, model.depthwise, model.head):
        prune.random_unstructured(layer, "weight", amount=0.8)
        prune.remove(layer, "weight")
    return model


@pytest.mark.slow
def test_a_masked_model_is_found_and_its_dense_twin_is_not(tmp_path: Path) -> None:
    sick, _ = diagnosed(tmp_path / "sick", masked())
    (zeros,) = [one for one in sick.findings if one.kind == "masked_weights"]
    assert "80% of the weights are exact zeros" in zeros.evidence
    cured, _ = diagnosed(tmp_path / "cured", torch_workload.Cnn())
    assert "masked_weights" not in [one.kind for one in cured.findings]


@pytest.mark.slow
def test_without_a_profile_there_is_still_a_diagnosis(tmp_path: Path) -> None:
    found, said = diagnosed(tmp_path, masked(), fails=True)
    assert found.total_s == pytest.approx(5e-3)
    assert said == ["no operator times for baseline: no profile today"]
    assert "masked_weights" not in [one.kind for one in found.findings], "what nobody saw is not claimed"


def test_a_runtime_that_cannot_look_says_so() -> None:
    worker = Worker()
    worker.session = object()  # type: ignore[assignment]
    assert worker.inspect() == {"inspection": None}


@pytest.mark.slow
def test_an_inspection_of_another_batch_and_precision(tmp_path: Path) -> None:
    of = torch_workload.candidate(tmp_path / "store", precision="bf16", batch=2)
    of = dataclasses.replace(of, execution=of.execution.with_options(cast="whole"))
    worker = Worker()
    worker.load(to_data(Torch().export(of, tmp_path / "artefact")))
    seen = from_data(Inspection, worker.inspect()["inspection"])
    assert dict(seen.widths)["stem.out"] == 8
    assert seen.zero_share == pytest.approx(0.0, abs=0.05)


class Looks:
    """A predictor that counts how often its process was started."""

    started = 0

    def __init__(self, failure: WorkerFailure | None = None) -> None:
        self.failure = failure

    def __enter__(self) -> Looks:
        Looks.started += 1
        return self

    def __exit__(self, *_: object) -> None:
        return

    def profile(self, calls: int) -> list[dict[str, Any]]:
        return [to_data(torch_workload.op("addmm", "matmul", 1e-3))]

    def inspect(self) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        return dict(to_data(Inspection(zero_share=0.5)))


@pytest.mark.parametrize("failure", [None, WorkerFailure(Outcome.CRASHED, "it died")])
def test_profile_and_inspection_share_a_process_and_are_kept(tmp_path: Path, failure: WorkerFailure | None) -> None:
    said: list[str] = []
    bench = Bench.__new__(Bench)
    bench.store, bench.waited_s, bench._talk = Store(tmp_path), 0.0, said.append
    bench._predictor = lambda artefact: Looks(failure)  # type: ignore[assignment,return-value]
    bench._turn = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    subject = Subject(plan=BASELINE_PLAN, key="k", artefact=object())  # type: ignore[arg-type]
    Looks.started = 0
    for _ in range(2):
        assert [op.name for op in bench.profile(subject)] == ["addmm"]
        seen = bench.inspect(subject)
        assert (seen is None) if failure else (seen is not None and seen.zero_share == 0.5)
    assert Looks.started == 1
    assert said == (["baseline was not inspected: it died"] if failure else [])
    bench.store.close()
