"""A store, a packed training job, the machine and a bench for it, opened together for one command.

The job is packed once into a folder named by its identity (:func:`ironlaw.workloads.parcel.identity`), so that the
same job finds its facts again; where it has none, it is measured anew in every run.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironlaw.bench import Limits, Subject
from ironlaw.records import (
    Candidate,
    Diagnosis,
    Execution,
    Goal,
    Kind,
    Machine,
    ModelFile,
    Objective,
    Snapshot,
    UserError,
)
from ironlaw.session import Session, Talk, allowed_cpus
from ironlaw.store import Store, clear_errors, home_folder
from ironlaw.training_bench import TrainingBench
from ironlaw.training_diagnosis import first_batch
from ironlaw.workloads.job import check_training
from ironlaw.workloads.parcel import FILE, identity, pack
from ironlaw.workloads.training import Training

FORM = "job"
OBJECTIVES = (Objective.THROUGHPUT, Objective.MEMORY, Objective.ENERGY)


def opened(
    training: Training,
    goal: Goal,
    limits: Limits,
    *,
    know_machine: Callable[..., Machine],
    home: str | Path | None = None,
    fresh: bool = False,
    talk: Talk,
) -> Session:
    """Check the job, pack it, take its first step, open the store, know the machine. Raises UserError."""
    check_training(training)
    _check(goal)
    root = Path(home) if home else home_folder()
    store = Store(root)
    try:
        host = know_machine(home=root, quick=True, talk=talk)
        cpus = allowed_cpus(goal.cores)
        execution = Execution(threads=len(cpus), cpus=cpus, precision=training.precision)
        with clear_errors(root):
            folder = _packed(training, store.folder("jobs"))
        batch = _batch(store, folder, execution)
        base = _candidate(training, folder, dataclasses.replace(execution, batch=batch), goal)
        key = host.environment.identity.digest
        if fresh:
            key += datetime.datetime.now(datetime.UTC).isoformat()
        judged_by = "nothing" if training.evaluate is None else identity(training.evaluate) or uuid.uuid4().hex
        bench = TrainingBench(store, training, base, host, key, limits, talk, judged_by=judged_by)
    except BaseException:
        store.close()
        raise
    return Session(store=store, snapshot=base.snapshot, bench=bench, machine=host, goal=goal, look=_look)


def _look(bench: TrainingBench, subject: Subject, machine: Machine, talk: Talk) -> Diagnosis:
    return bench.examined(subject)


def _check(goal: Goal) -> None:
    """What a job that trains can be tuned for. Raises UserError."""
    if goal.objective not in OBJECTIVES:
        raise UserError(
            f"--objective {goal.objective}", "is not one of a training job", f"Use: {', '.join(OBJECTIVES)}."
        )
    for name, given in (("--p99", goal.p99_s), ("--max-size", goal.max_size_bytes), ("--target", goal.target)):
        if given is not None:
            raise UserError(name, "does not go with a training job", "It is for models that are served; leave it out.")
    if goal.allow_modelled_energy:
        raise UserError("--allow-modelled", "does not go with a training job", "Its energy is counted, or not known.")


def _packed(training: Training, jobs: Path) -> Path:
    """The folder of the packed job, written once. Raises UserError for a part that cannot be pickled."""
    folder = jobs / (identity(dataclasses.replace(training, evaluate=None)) or uuid.uuid4().hex[:16])
    if not (folder / FILE).exists():
        beside = jobs / f"{folder.name}.{os.getpid()}.part"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        try:
            pack(training, beside)
            shutil.rmtree(folder, ignore_errors=True)
            beside.rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return folder


def _batch(store: Store, folder: Path, execution: Execution) -> int:
    known: Any = store.fact(folder.name, "batch")
    if known is None:
        known = first_batch(folder / FILE, execution)
        store.keep(folder.name, "batch", known)
    return int(known)


def _candidate(training: Training, folder: Path, execution: Execution, goal: Goal) -> Candidate:
    parameters = [p for p in training.model.parameters() if p.requires_grad]
    model = ModelFile(form=FORM, path=str(folder / FILE), digest=folder.name)
    taken = Snapshot(
        digest=folder.name,
        kind=Kind.TRAINING,
        name=training.name or "training",
        folder=str(folder),
        model=model,
        inputs=(),
        outputs=(),
        batch=execution.batch,
        dynamic=False,
        parameters=sum(p.numel() for p in parameters),
        weights_bytes=sum(v.numel() * v.element_size() for v in training.model.state_dict().values()),
        has_training_data=True,
        evaluated=training.evaluate is not None,
    )
    return Candidate(snapshot=taken, model=model, execution=execution, goal=goal)
