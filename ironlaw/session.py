"""A store, a workload's snapshot, the machine and the bench, opened together for one command."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw import registry
from ironlaw.bench import Bench, Limits, Subject
from ironlaw.contracts import Lever
from ironlaw.examining import examined
from ironlaw.judging import Judge
from ironlaw.loop import Loop
from ironlaw.plan.search import Search
from ironlaw.plan.space import Space
from ironlaw.plan.widening import Widening
from ironlaw.records import Candidate, Diagnosis, Execution, Form, Goal, Machine, Snapshot, UserError
from ironlaw.store import Store, clear_errors, home_folder

Talk = Callable[[str], None]
ALWAYS = frozenset({"compile(freezing=False)", "bf16"})
"""On the table of every run, whatever is predicted: what people would try first."""


@dataclass(kw_only=True)
class Session:
    """A store, a workload's snapshot and its bench, opened together."""

    store: Store
    snapshot: Snapshot
    bench: Bench
    machine: Machine
    goal: Goal
    look: Callable[[Any, Subject, Machine, Talk], Diagnosis] = examined

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def loop(self, levers: Mapping[str, Lever], time_limit_s: float, talk: Talk) -> Loop:
        from ironlaw import forms

        isa = self.machine.environment.identity.isa
        space = Space(
            levers=levers,
            machine=self.machine,
            unmet=lambda needs, taken: registry.unmet(
                needs, isa=isa, calibration=taken.calibration_batches > 0, evaluate=taken.evaluated
            ),
            reaches=lambda source, wanted: forms.nearest(source, wanted) is not None,
            always=ALWAYS,
            widening=Widening(self.store.forecasts(imported=True), self.snapshot.digest),
        )
        last = max((cache.size_bytes for cache in self.machine.caches), default=None)
        judge = Judge(bench=self.bench, goal=self.goal, cache_bytes=last)
        return Loop(
            bench=self.bench,
            space=space,
            judge=judge,
            machine=self.machine,
            time_limit_s=time_limit_s,
            talk=talk,
            search=Search(),
            look=self.look,
        )


def opened(
    workload: Any,
    goal: Goal,
    limits: Limits,
    *,
    know_machine: Callable[..., Machine],
    data: str | Path | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    talk: Talk,
) -> Session:
    """Load and check the workload, open the store, know the machine."""
    from ironlaw.workloads.load import served
    from ironlaw.workloads.snapshot import evaluator, rebuild, snapshot

    root = Path(home) if home else home_folder()
    store = Store(root)
    try:
        inference = served(workload, data=data)
        name = inference.name or "inference"
        with clear_errors(root):
            taken = snapshot(inference, store.folder("snapshots"), name)
        host = know_machine(home=root, quick=True, talk=talk)
        base = base_candidate(taken, goal)
        key = host.environment.identity.digest
        if fresh:
            key += datetime.datetime.now(datetime.UTC).isoformat()
        bench = Bench(store, inference, evaluator(inference, taken), rebuild(inference), base, key, limits, talk)
    except BaseException:
        store.close()
        raise
    return Session(store=store, snapshot=taken, bench=bench, machine=host, goal=goal)


def allowed_cpus(cores: int | None) -> tuple[int, ...]:
    """The CPUs of this process, the first ``cores`` of them. Raises UserError when there are not so many."""
    from ironlaw.machine.environment import usable_cpus

    cpus = usable_cpus()
    if cores is not None and not 1 <= cores <= len(cpus):
        raise UserError(
            f"--cores {cores}", f"this process may use {len(cpus)}", f"Give a number from 1 to {len(cpus)}."
        )
    return tuple(cpus[:cores])


def base_candidate(taken: Snapshot, goal: Goal) -> Candidate:
    """The workload as the user runs it: their form, all cores, the runtime's own defaults."""
    cpus = allowed_cpus(goal.cores)
    runtime = "onnxruntime" if taken.model.form == Form.ONNX else "torch"
    execution = Execution(target=runtime, batch=taken.batch, threads=len(cpus), cpus=cpus)
    return Candidate(snapshot=taken, model=taken.model, execution=execution, goal=goal)
