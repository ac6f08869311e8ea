"""A training job from the user's objects to its diagnosis: packed, run in fresh processes, split, counted, explained.

The job is pickled by value into a private folder of the store, which is removed afterwards: nothing of it is kept,
since loader and loss are code whose content has no address. One process times the loader's own stages, profiles and
counts; others, one after the other so that they share no core, time steps on fresh and on cached batches in turn.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw.diagnose import merge
from ironlaw.diagnose.energy import modelled
from ironlaw.diagnose.training import diagnose_step
from ironlaw.measure.lock import machine_lock
from ironlaw.measure.process import Child, WorkerFailure
from ironlaw.measure.steps import StepLaunch, launch_from, step_times
from ironlaw.records import Diagnosis, Execution, Ledger, Machine, Op, TrainingMemory, UserError, from_data, to_data
from ironlaw.records.training import Loader, StepTimes
from ironlaw.workloads.parcel import pack
from ironlaw.workloads.training import Training

Talk = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much measuring a diagnosis does: ``launches`` of about ``turns_s`` seconds of blocks after the warm-up."""

    launches: int = 3
    turns_s: float = 4.0
    block_s: float = 0.3
    warm_limit_s: float = 6.0
    stages_s: float = 1.0
    profile_s: float = 2.0
    limit_s: float = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """A diagnosed job with what it rests on."""

    diagnosis: Diagnosis
    times: StepTimes
    loader: Loader


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What the process that looks inside found."""

    loader: Loader
    ledger: Ledger
    ops: tuple[Op, ...]
    batch: int
    device: str
    memory: TrainingMemory | None


def examined(
    training: Training, machine: Machine, cpus: Sequence[int], folder: Path, talk: Talk, effort: Effort = Effort()
) -> Examined:
    """Where the time of a step goes on these ``cpus``; ``folder`` takes the packed job while it runs.

    Raises UserError for whatever is wrong with the user's model, data, loss or optimiser.
    """
    execution = Execution(threads=len(cpus), cpus=tuple(cpus), precision=training.precision)
    with tempfile.TemporaryDirectory(dir=folder) as private:
        return examined_job(pack(training, Path(private)), machine, execution, talk, effort)


def examined_job(path: Path, machine: Machine, execution: Execution, talk: Talk, effort: Effort = Effort()) -> Examined:
    """The same of a job that is packed in ``path``, run as ``execution`` says. Raises UserError."""
    with machine_lock(talk):
        talk("time the loader's stages, profile and count a step")
        seen = _look(path, machine, execution, effort, talk)
        launches = []
        for number in range(1, effort.launches + 1):
            talk(f"time steps on fresh and on cached batches: launch {number} of {effort.launches}")
            launches.append(_launch(path, execution, effort, talk))
    loader = _working(seen.loader, launches)
    times = step_times(launches, batch=seen.batch, device=seen.device, batches=loader.batches)
    execution = dataclasses.replace(execution, batch=seen.batch)
    diagnosis = diagnose_step(merge(seen.ledger, seen.ops), times, loader, machine, execution)
    energy = modelled(diagnosis.ledger, precision=execution.precision)
    diagnosis = dataclasses.replace(diagnosis, memory=seen.memory, energy=energy)
    return Examined(diagnosis=diagnosis, times=times, loader=loader)


def first_batch(path: Path, execution: Execution, effort: Effort = Effort()) -> int:
    """Samples in a batch, from one checked step. Raises UserError for whatever is wrong with the user's part of it."""
    with _opened(path, execution, effort) as (_, opened):
        return int(opened["batch"])


def _look(path: Path, machine: Machine, execution: Execution, effort: Effort, talk: Talk) -> _Seen:
    with _opened(path, execution, effort) as (ask, opened):
        loader = from_data(Loader, ask("inspect", seconds=effort.stages_s)["loader"])
        _warm(ask, effort)
        ops = _answer(ask, "operators", talk, seconds=effort.profile_s, least=2, most=20).get("ops", [])
        last = max((cache.size_bytes for cache in machine.caches), default=None)
        counted = _answer(ask, "ledger", talk, cache_bytes=last).get("ledger")
        peak = _answer(ask, "memory", talk).get("memory")
    empty = Ledger(ops=(), batch=opened["batch"], source="not counted")
    return _Seen(
        loader=loader,
        ledger=from_data(Ledger, counted) if counted else empty,
        ops=tuple(from_data(Op, op) for op in ops),
        batch=opened["batch"],
        device=opened["device"],
        memory=from_data(TrainingMemory, peak) if peak else None,
    )


def _launch(path: Path, execution: Execution, effort: Effort, talk: Talk) -> StepLaunch:
    with _opened(path, execution, effort) as (ask, _):
        if not _warm(ask, effort):
            talk(f"  steps still varied after {effort.warm_limit_s:g} s of warm-up")
        return launch_from(ask("turns", seconds=effort.turns_s, block_s=effort.block_s)["launch"])


def _warm(ask: Callable[..., dict[str, Any]], effort: Effort) -> bool:
    return bool(ask("warm", limit_s=effort.warm_limit_s)["converged"])


def _answer(ask: Callable[..., dict[str, Any]], action: str, talk: Talk, **request: Any) -> dict[str, Any]:
    """An answer, or none with the reason told: a step that cannot be counted can still be timed."""
    try:
        return ask(action, **request)
    except WorkerFailure as failure:
        talk(f"no {action} of a step: {failure.reason}")
        return {}


@contextmanager
def _opened(
    path: Path, execution: Execution, effort: Effort
) -> Iterator[tuple[Callable[..., dict[str, Any]], dict[str, Any]]]:
    """A fresh process with the job open in it: how to ask it, and what it said on opening."""
    threads = str(execution.threads)
    variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    variables |= {name: str(value) for name, value in execution.variables}
    with Child("ironlaw.steps_worker", variables=variables, cpus=execution.cpus) as child:

        def ask(action: str, **request: Any) -> dict[str, Any]:
            answer = child.ask(action, timeout_s=effort.limit_s, **request)
            if "wrong" in answer:
                raise UserError(**answer["wrong"])
            return answer

        try:
            opened = ask("open", path=str(path), execution=to_data(execution))
        except WorkerFailure as failure:
            raise UserError(
                "training job", f"does not run: {failure.reason}", "Run a few steps of it yourself, then look again."
            ) from failure
        yield ask, opened


def _working(loader: Loader, launches: Sequence[StepLaunch]) -> Loader:
    """The loader with what its workers took while the job trained, and the length of an epoch where it was seen."""
    blocks = [block for launch in launches for block in launch.normal]
    cpu = [block.loader_cpu for block in blocks if block.loader_cpu is not None]
    threads = [block.loader_threads for block in blocks if block.loader_threads is not None]
    seen = [launch.batches for launch in launches if launch.batches]
    return dataclasses.replace(
        loader,
        batches=loader.batches or max(seen, default=None),
        worker_cpu=sum(cpu) / len(cpu) if cpu else None,
        worker_threads=max(threads, default=None),
    )
