"""Training steps that wait for their input: how much of the time it is, what fixing it is worth, what hides it.

A job's steps are split and set against steps on batches in memory, in this process, as ``diagnose`` does it in fresh
ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ironlaw.diagnose.training import diagnose_step
from ironlaw.measure import loader, steps
from ironlaw.records import Diagnosis, Execution, Ledger, Term
from ironlaw.records.training import StepTimes
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here, one_thread
from ironlaw.workloads.job import Job
from ironlaw.workloads.training import Training

WIDTH, BATCH, SAMPLES = 256, 8, 64
_TURNS_S, _BLOCK_S, _GROUPS = 0.3, 0.06, 3
_MOST = 0.5
_CLOSE, _FAR = 1.5, 2.5
_FRACTION = 0.6


class _Samples(Dataset[Any]):  # type: ignore[misc]
    """Samples that take ``seconds`` each to come by: waited for, or spent on the CPU."""

    def __init__(self, seconds: float, *, spin: bool = False) -> None:
        self.seconds, self.spin = seconds, spin

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        end = time.perf_counter() + self.seconds
        if self.spin:
            while time.perf_counter() < end:
                pass
        elif self.seconds:
            time.sleep(self.seconds)
        return torch.full((WIDTH,), float(index)), torch.zeros(WIDTH)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    times: StepTimes
    diagnosis: Diagnosis
    cpu: float

    @property
    def waits(self) -> float:
        """Share of a step that is input."""
        return self.times.io_s / self.times.total.value


def _examine(here: Here, samples: _Samples) -> _Seen:
    """Split steps of a small perceptron on these samples; ``cpu`` is CPU seconds over wall seconds."""
    models.seeded()
    data = DataLoader(samples, batch_size=BATCH)
    training = Training(models.mlp(WIDTH, 4 * WIDTH), data, nn.functional.mse_loss, lambda p: torch.optim.SGD(p, 1e-3))
    with one_thread():
        job = Job(training)
        feed = steps.Feed(job.epoch)
        ring = steps.Ring([feed.take() for _ in range(4)])
        warm = [sum(steps.one_step(job, feed.take)) for _ in range(4)]
        found = loader.inspected(job.source, job.epoch, 0.2)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        launches = [
            steps.turns(job, feed, ring, seconds=_TURNS_S, block_s=_BLOCK_S, step_s=warm[-1], ahead=0)
            for _ in range(_GROUPS)
        ]
        cpu = (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
    times = steps.step_times(launches, batch=BATCH, device="cpu", batches=found.batches)
    empty = Ledger(ops=(), batch=BATCH, source="not counted: the input is in question")
    run = Execution(batch=BATCH, threads=1, cpus=(0,))
    return _Seen(times=times, diagnosis=diagnose_step(empty, times, found, here.machine, run), cpu=cpu)


def _waiting(here: Here, samples: _Samples) -> Said:
    """Input dominates, and the loader is named as what keeps the step waiting."""
    seen = _examine(here, samples)
    found = {one.kind: one for one in seen.diagnosis.findings}.get("too_few_workers")
    words = f"input is {seen.waits:.0%} of a step at {seen.cpu:.0%} of the CPU: "
    words += found.evidence if found else seen.diagnosis.why
    if found is not None and seen.waits > _MOST:
        return Said(fires=seen.diagnosis.dominant in (Term.IO, None), words=words)
    return Said(fires=None if seen.waits > _MOST / 2.0 else False, words=words)


def _cap(here: Here, *, fraction: float) -> Said:
    """What loading that takes no time is worth, when it takes that fraction of a step by construction."""
    step_s = here.once("step without input", lambda: _examine(here, _Samples(0.0)).times.cached.value)
    seen = _examine(here, _Samples(step_s * fraction / (1.0 - fraction) / BATCH))
    cap = next(one for one in seen.diagnosis.bounds if one.change == "infinitely fast loading")
    due = seen.times.total.value / step_s
    words = f"{cap.reason}; a step of the same model without input is {due:.2f} times as fast"
    if not fraction:
        return Said(fires=cap.speedup > 1.0 / (1.0 - _FRACTION) / _CLOSE, words=words)
    apart = max(cap.speedup, due) / min(cap.speedup, due)
    fires = True if apart < _CLOSE and not cap.wasted else False if apart > _FAR else None
    return Said(fires=fires, words=words)


CASES = (
    Case(
        name="step-waits-for-input",
        numbers=(44,),
        reference="open-edge-platform/geti PR 5958",
        situation="samples that each take 2 ms to arrive, loaded beside nothing",
        verdict="the step waits most of its time: load in workers",
        cured="the same samples in memory",
        ask=lambda here: _waiting(here, _Samples(2e-3)),
        ask_cured=lambda here: _waiting(here, _Samples(0.0)),
    ),
    Case(
        name="cap-of-fixing-the-loader",
        numbers=(45,),
        reference="facebookresearch/mmf#1166",
        situation="about 60 % of a step is loading",
        verdict="free loading is worth what the same step without input shows, about 2.5x",
        cured="samples in memory: free loading is not worth that",
        ask=lambda here: _cap(here, fraction=_FRACTION),
        ask_cured=lambda here: _cap(here, fraction=0.0),
    ),
    Case(
        name="busy-and-still-waiting",
        numbers=(46,),
        reference="nvidia-smi's utilisation: 100 % at 1 % of the throughput (collected)",
        situation="samples that each burn 2 ms of CPU: the process is busy all the time",
        verdict="utilisation says nothing: the step waits for its input",
        cured="the same samples in memory, as busy",
        ask=lambda here: _waiting(here, _Samples(2e-3, spin=True)),
        ask_cured=lambda here: _waiting(here, _Samples(0.0)),
    ),
)
