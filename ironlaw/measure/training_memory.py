"""Peak memory of training, by part: predicted on fake tensors, and measured in a fresh process.

Why both in one file: they fill the same record, by the same log of storages, so that a difference is a fault of the
prediction and never of the definition. Three sizes are told apart: *tensors* (storages that the program holds),
*allocated* (with what kernels take from torch's allocator for themselves) and *resident* (what the system gave the
process, less what the framework needs before the workload is there). Only tensors are derived exactly; resident
memory has the allocator of the C library in it and is an interval in both.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironlaw.measure.c_allocator import resident
from ironlaw.measure.operands import tensors
from ironlaw.measure.process import Child
from ironlaw.measure.storages import Moment, Part, Storages
from ironlaw.measure.training_step import Phase, Step, on_fakes, run
from ironlaw.records import Interval, TrainingMemory, from_data

STEPS = 2
"""The optimiser's state is made at the end of the first step: the second is a steady one."""


def predicted_peak(step: Step) -> TrainingMemory:
    """The peak, without allocating or computing anything: model and batch may be larger than memory.

    Raises what torch raises where the values of a tensor decide the control flow, or an operator has no fake form.
    """
    with on_fakes(step) as faked:
        storages = watch(faked)
    moment = storages.peak()
    return _record(moment, moment.allocated_bytes, resident(storages.traffic()), "predicted on fake tensors")


def measured_peak(
    build: Callable[[], Step], *, threads: int = 1, launches: int = 3, timeout_s: float = 600.0
) -> TrainingMemory:
    """The same on real tensors. ``build`` makes the step, and is called in fresh processes with ``threads``.

    The first counts storages and reads torch's allocator. ``launches`` more only train, and their largest resident
    sets are read: least, median and greatest, since two runs of one program differ. What ``build`` refers to must be
    importable there, or be defined in the caller's own script.

    Raises ``WorkerFailure`` when a process runs out of memory or time, or whatever ``build`` or the step raises.
    """
    import cloudpickle

    with tempfile.TemporaryDirectory(prefix="ironlaw-memory-") as folder:
        path = Path(folder) / "build.pkl"
        path.write_bytes(cloudpickle.dumps(build))
        counted = _ask("count", path, threads, timeout_s)
        trained = [_ask("reside", path, threads, timeout_s)["resident_bytes"] for _ in range(launches)]
    spread = Interval(low=min(trained), value=statistics.median(trained), high=max(trained))
    moment = from_data(Moment, counted["moment"])
    return _record(moment, counted["allocated_bytes"], spread, "measured")


def watch(step: Step) -> Storages:
    """Run the first steps under the log of storages, in this process, on the tensors that the step has."""
    storages = Storages()
    storages.label([*step.model.parameters(), *step.model.buffers()], Part.PARAMETERS)
    storages.label(tensors(list(step.batch)), Part.INPUTS)

    def enter(phase: Phase) -> None:
        if phase == Phase.OPTIMISER:
            storages.label([p.grad for p in step.model.parameters() if p.grad is not None], Part.GRADIENTS)
        storages.enter(phase)

    with storages.mode():
        optimiser = step.optimiser(step.model.parameters())
        for _ in range(STEPS):
            run(step, optimiser, enter)
            storages.label(tensors([list(state.values()) for state in optimiser.state.values()]), Part.OPTIMISER)
    return storages


def _ask(action: str, path: Path, threads: int, timeout_s: float) -> dict[str, Any]:
    pools = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    variables = {**pools, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    with Child("ironlaw.measure.memory_worker", variables=variables) as child:
        return child.ask(action, timeout_s=timeout_s, path=str(path))


def _record(moment: Moment, allocated_bytes: float, resident_bytes: Interval, source: str) -> TrainingMemory:
    return TrainingMemory(
        **{f"{part}_bytes": float(size) for part, size in moment.parts.items()},
        moment=f"{moment.phase}: {moment.operator}" if moment.operator else str(moment.phase),
        allocated_bytes=float(allocated_bytes),
        resident_bytes=resident_bytes,
        source=source,
    )
