"""Each perturbation on a tiny model that runs here: it ends, it says its term in seconds, and in the obvious direction.

Margins are generous: other work on the machine may widen what is said, never turn it round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_workload import Cnn
from torch_workload import machine as synthetic

from ironlaw import loop, perturbing
from ironlaw.bench import Limits
from ironlaw.diagnose.confirming import agrees
from ironlaw.measure.paired import Effort, usable_cpus
from ironlaw.perturbing import case as rounds
from ironlaw.records import Diagnosis, Goal, Machine, Perturbation, Term
from ironlaw.session import Session, opened
from ironlaw.workloads.inference import Inference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
QUICK = Effort(cycles=4, block_s=0.05, round_s=4.0, warm_limit_s=2.0, against_self=False)
TABLE = 128 << 20
"""Bytes of a table that few caches hold."""
two_cores = pytest.mark.skipif(len(usable_cpus()) < 2, reason="one core: nothing can run beside the workload")


class ManyLinears(nn.Module):
    """Sixty products of next to nothing: dispatch is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(60)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Table(nn.Module):
    """Reads a table that no cache holds, whatever the input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(TABLE // 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table.amax()


class Widened(nn.Module):
    """Twenty passes over activations that leave the cache at a large batch only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x.mul_(1.0).add_(0.0)
        return x.mean(1, keepdim=True)


@pytest.fixture
def perturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Diagnosis, tuple[Perturbation, ...], Session]]]:
    """Measures a model here, diagnoses it against a synthetic machine, and perturbs it."""
    monkeypatch.setattr(loop, "BASELINE_LAUNCHES", 1)
    monkeypatch.setattr(loop, "FULL", dataclasses.replace(QUICK, against_self=True))
    monkeypatch.setattr(rounds, "EFFORT", QUICK)
    monkeypatch.setattr(rounds, "LAUNCHES", 3)
    sessions: list[Session] = []

    def run(model: nn.Module, example: torch.Tensor, *names: str, cores: int | None = None):
        def known(**_: object) -> Machine:
            return synthetic(cores=len(usable_cpus()))

        work = Inference(model.eval(), (example,))
        goal = Goal(cores=cores)
        session = opened(work, goal, Limits(), know_machine=known, home=tmp_path / "store", talk=lambda _: None)
        sessions.append(session)
        made = session.loop({}, 600.0, lambda _: None)
        made.measure_baseline()
        assert made.diagnosis is not None
        subject = session.bench.baseline
        found = perturbing.perturb(session.bench, subject, made.diagnosis, session.machine, names, lambda _: None)
        return made.diagnosis, found, session

    yield run
    for session in sessions:
        session.store.close()


def within(diagnosis: Diagnosis, one: Perturbation) -> float:
    """The share of a call that it says, after checking what holds for every answer."""
    assert one.seconds is not None, one.evidence
    assert 0.0 <= one.seconds.low <= one.seconds.value <= one.seconds.high <= diagnosis.total_s
    assert one.confirms in (None, agrees(diagnosis, one.term, one.seconds))
    return one.seconds.value / diagnosis.total_s


def test_many_tiny_linears_pay_a_fixed_cost(perturbed) -> None:
    diagnosis, found, _ = perturbed(ManyLinears(), torch.randn(1, 8), "batch", "tiny")
    latency, compute, tiny = found
    assert (latency.name, latency.term, compute.term, tiny.name) == ("batch", Term.LATENCY, Term.COMPUTE, "tiny")
    assert within(diagnosis, latency) > 0.5
    assert within(diagnosis, compute) < 0.5
    assert tiny.seconds is None
    assert "no smaller input" in tiny.evidence


def test_the_smallest_image_is_found_and_leaves_the_dispatches(perturbed) -> None:
    diagnosis, (one,), session = perturbed(Cnn(), torch.randn(4, 3, 96, 96), "tiny")
    assert within(diagnosis, one) < 0.7
    assert "1x3x1x1" in one.evidence
    again = perturbing.perturb(
        session.bench, session.bench.baseline, diagnosis, session.machine, ["tiny"], lambda _: None
    )
    assert again == (one,)  # its launches are facts: nothing is measured twice


@two_cores
def test_threads_share_next_to_nothing_of_tiny_linears(perturbed) -> None:
    diagnosis, (one,), _ = perturbed(ManyLinears(), torch.randn(1, 8), "threads")
    assert one.term is Term.SERIAL
    assert within(diagnosis, one) > 0.4
    assert "knee" in one.evidence


@two_cores
def test_a_table_in_memory_is_limited_by_bandwidth(perturbed) -> None:
    diagnosis, (one,), _ = perturbed(Table(), torch.randn(1, 8), "co-runner", cores=1)
    if one.seconds is None:
        assert "cannot tell" in one.evidence
        pytest.skip(f"the co-runner does not use up the bandwidth of this machine: {one.evidence}")
    assert one.term is Term.MEMORY
    within(diagnosis, one)
    assert one.seconds.high > 0.4 * diagnosis.total_s
    assert "bandwidth limits" in one.evidence


def test_small_parts_of_a_large_batch_are_compared(perturbed) -> None:
    """At 64 MiB the activations leave the synthetic machine's 32 MiB; eight rows fit half of it."""
    diagnosis, (one,), _ = perturbed(Widened(), torch.randn(32, 1 << 19), "cached")
    assert one.term is Term.MEMORY
    assert within(diagnosis, one) >= 0.0
    assert one.seconds is not None
    assert one.seconds.high == diagnosis.total_s
    assert "calls of" in one.evidence


def test_where_nothing_overflows_the_cache_it_says_so(perturbed) -> None:
    _, (one,), _ = perturbed(ManyLinears(), torch.randn(1, 8), "cached")
    assert one.seconds is None
    assert "fits half" in one.evidence
