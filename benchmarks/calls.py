"""One unseen model on both runtimes: its call predicted from its ledger, and only then built and measured.

Why not the session of a tune: that scores, profiles and inspects, and begins processes for each, while here only the
ledger and the time of a call are asked for. One builder process serves all models; the two launches of each runtime
are loaded side by side and measured in turns (:mod:`ironlaw.measure.paired`). Everything of a model but its
two facts, the prediction and the launches, lies in a folder that goes when it was measured.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks import common, unseen
from ironlaw import predict
from ironlaw.measure.lock import machine_lock
from ironlaw.measure.page_faults import call_faults
from ironlaw.measure.paired import BASELINE, FOREIGN_LIMIT, SELF, Effort, Launch, round_of
from ironlaw.measure.process import Child, WorkerFailure
from ironlaw.measure.summary import QUIET_SHARE, launch_data, launch_from
from ironlaw.records import (
    Artefact,
    Candidate,
    Goal,
    Interval,
    Ledger,
    Machine,
    Outcome,
    Snapshot,
    digest_of,
    from_data,
    to_data,
)
from ironlaw.session import base_candidate
from ironlaw.store import Store

EAGER, GRAPH = "torch", "onnxruntime"
TARGETS = (EAGER, GRAPH)
STEPS: Mapping[str, list[dict[str, Any]]] = {
    EAGER: [],
    GRAPH: [{"lever": "runtime", "settings": {"target": GRAPH}}],
}
AGAIN = "again"
EFFORT = Effort(cycles=5, block_s=0.06, round_s=3.0, min_calls=3, warm_limit_s=1.5)
LIMIT_S = 180.0
CODE = (
    "ironlaw/predict.py", "ironlaw/rates.py", "ironlaw/shapes.py", "ironlaw/fusion.py", "ironlaw/measure/ledger*.py",
    "ironlaw/measure/page_faults.py", "ironlaw/measure/storages.py", "ironlaw/measure/c_allocator.py",
    "ironlaw/measure/kernel_workspace.py",
    "benchmarks/unseen.py", "benchmarks/families.py", "benchmarks/architectures.py",
)  # fmt: skip
"""What a prediction is made by: where one of these changes, everything is predicted and measured anew."""

LaunchesOf = dict[str, list[Launch]]
"""Two launches of each target that worked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One model on one target: what was predicted and what its launches took.

    ``faults`` is how many page faults a call was predicted to have, None where that is not known.
    """

    model: str
    family: str
    target: str
    predicted: Interval
    faults: Interval | None
    launches: tuple[Launch, ...]

    @property
    def each_s(self) -> list[float]:
        """The median call of each launch."""
        return [statistics.median(launch.latencies_s) for launch in self.launches]

    @property
    def measured_s(self) -> float:
        """The geometric mean of the launches."""
        return math.exp(statistics.fmean(math.log(seconds) for seconds in self.each_s))

    @property
    def error(self) -> float:
        """ln(predicted / measured)."""
        return math.log(self.predicted.value / self.measured_s)

    @property
    def spread(self) -> float:
        """How far two launches of the same artefact are apart, on the log scale: A against A."""
        logs = [math.log(seconds) for seconds in self.each_s]
        return max(logs) - min(logs)

    @property
    def covered(self) -> bool:
        return self.predicted.low <= self.measured_s <= self.predicted.high

    @property
    def settled(self) -> bool:
        """Whether enough blocks were free of foreign load."""
        foreign = [share for launch in self.launches for share in launch.foreign]
        return sum(share <= FOREIGN_LIMIT for share in foreign) >= QUIET_SHARE * len(foreign)

    @property
    def faulted(self) -> float:
        """Page faults of a call, as measured."""
        return sum(launch.faults for launch in self.launches) / sum(launch.calls for launch in self.launches)


class Builder:
    """One builder process for many models, begun anew after a failure: to import torch takes as long as an export."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def ask(self, action: str, **request: Any) -> dict[str, Any]:
        """An answer of the builder, which sleeps while it is not asked. Raises WorkerFailure."""
        self._child = self._child or Child("ironlaw.builder")
        try:
            answer = self._child.ask(action, timeout_s=LIMIT_S, **request)
        except WorkerFailure as failure:
            if failure.outcome is not Outcome.BUILD_FAILED:
                self.close()
            raise
        self._child.pause()
        return answer

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
        self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def calls_of(
    name: str, store: Store, machine: Machine, builder: Builder, talk: Callable[[str], None]
) -> tuple[list[Call], list[str]]:
    """The calls of one model on both targets, and why one is missing. What the store knows is not done again."""
    family = unseen.models()[name][0]
    key = digest_of([name, code(), machine.environment.identity.digest, machine.ceilings, machine.kernels])
    if store.fact(key, "measured") is None:
        with tempfile.TemporaryDirectory(dir=store.folder("work")) as folder:
            _find_out(name, key, store, machine, builder, Path(folder), talk)
    predicted, found = store.fact(key, "predicted") or {}, store.fact(key, "measured") or {}
    faults = store.fact(key, "faults")
    calls = [
        Call(
            model=name,
            family=family,
            target=target,
            predicted=from_data(Interval, predicted[target]),
            faults=from_data(Interval, faults) if faults and target == EAGER else None,
            launches=tuple(launch_from(one) for one in found["launches"][target]),
        )
        for target in TARGETS
        if target in predicted and target in found["launches"]
    ]
    return calls, [f"{name}: {why}" for why in found["failed"]]


def code() -> str:
    """A digest of the sources in :data:`CODE`."""
    paths = sorted(path for pattern in CODE for path in common.ROOT.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def predicted_calls(ledger: Ledger, faults: Interval | None, machine: Machine, threads: int) -> dict[str, Interval]:
    """Seconds of a call by target, from one counting pass; a target that was never calibrated here has none."""
    found = {
        target: predict.call(ledger, machine, target=target, dtype="fp32", threads=threads, faults=faults)
        for target in TARGETS
    }
    return {target: interval for target, interval in found.items() if interval is not None}


def paired(found: Mapping[str, Launch | WorkerFailure]) -> tuple[LaunchesOf, list[str]]:
    """The two launches of each target, and the reasons of those that failed."""
    names = {EAGER: (BASELINE, SELF), GRAPH: (GRAPH, AGAIN)}
    launches: LaunchesOf = {}
    failed = []
    for target, pair in names.items():
        taken = [found[name] for name in pair if name in found]
        reasons = [f"{target}: {one.reason}" for one in taken if isinstance(one, WorkerFailure)]
        failed += reasons[:1]
        if taken and not reasons:
            launches[target] = [one for one in taken if isinstance(one, Launch)]
    return launches, failed


def _find_out(
    name: str, key: str, store: Store, machine: Machine, builder: Builder, folder: Path, talk: Callable[[str], None]
) -> None:
    """Keep the prediction, then the launches."""
    from ironlaw.workloads.snapshot import snapshot

    with machine_lock(talk):
        workload = unseen.workload(name)
        taken = snapshot(workload, folder / "snapshot", name)
        candidate = base_candidate(taken, Goal())
        try:
            if store.fact(key, "predicted") is None:
                ledger, faults = _counted(taken, candidate, machine, builder), _faults(workload)
                store.keep(key, "faults", faults)
                store.keep(key, "predicted", predicted_calls(ledger, faults, machine, candidate.execution.threads))
            artefacts, failed = _built(candidate, builder, folder)
            launches, more = paired(_measured(artefacts))
        except WorkerFailure as failure:
            launches, failed, more = {}, [failure.reason], []
    data = {target: [launch_data(one) for one in pair] for target, pair in launches.items()}
    store.keep(key, "measured", {"launches": data, "failed": [*failed, *more]})


def _counted(taken: Snapshot, candidate: Candidate, machine: Machine, builder: Builder) -> Ledger:
    answer = builder.ask(
        "ledger",
        model=to_data(candidate.model),
        snapshot=to_data(taken),
        batch=candidate.execution.batch,
        cache_bytes=max((cache.size_bytes for cache in machine.caches), default=None),
    )
    return from_data(Ledger, answer["ledger"])


def _faults(workload: Any) -> Interval | None:
    model, example = workload.model, workload.example
    return call_faults(lambda: model(*example), [*model.parameters(), *model.buffers()], example)


def _built(candidate: Candidate, builder: Builder, folder: Path) -> tuple[dict[str, Artefact], list[str]]:
    """Artefacts by target; the eager one must be built. Raises WorkerFailure."""
    artefacts, failed = {}, []
    for target in TARGETS:
        try:
            answer = builder.ask(
                "build",
                base=to_data(candidate),
                steps=STEPS[target],
                root=str(folder / "steps"),
                folder=str(folder / target),
            )
        except WorkerFailure as failure:
            if target == EAGER:
                raise
            failed.append(f"{target}: {failure.reason}")
            continue
        artefacts[target] = from_data(Artefact, answer["artefact"])
    return artefacts, failed


def _measured(artefacts: Mapping[str, Artefact]) -> dict[str, Launch | WorkerFailure]:
    graph = artefacts.get(GRAPH)
    others = {} if graph is None else {GRAPH: graph, AGAIN: graph}
    return round_of(artefacts[EAGER], others, EFFORT, memory_limit_bytes=None, time_limit_s=LIMIT_S)


def spread_of(calls: Sequence[Call]) -> float:
    """How far A strays from A in the middle of these calls, on the log scale."""
    return statistics.median(call.spread for call in calls)
