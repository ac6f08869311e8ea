"""The process that trains a few steps to see how much memory they take; it times nothing.

``python -m ironlaw.measure.memory_worker`` answers the JSON lines of the worker. Counting storages and reading the
allocator disturb the resident set, so that each of the two actions is asked of a process of its own. The pickle is
one that the parent has just written into a folder that only this user can read.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironlaw.measure.operands import tensors
from ironlaw.measure.training_memory import STEPS, watch
from ironlaw.measure.training_step import Step, run
from ironlaw.records import to_data
from ironlaw.worker import die_with_parent, peak_memory_bytes, serve


class MemoryWorker:
    """Answers one request, each in the units of its record."""

    def count(self, path: str) -> dict[str, Any]:
        """The log of storages, then the allocator's own events, without the log."""
        build = _build(path)
        moment = watch(build()).peak()
        gc.collect()
        return {"moment": to_data(moment), "allocated_bytes": _allocated(build())}

    def reside(self, path: str) -> dict[str, Any]:
        """Growth of the largest resident set over what torch takes for its own first step."""
        build = _build(path)
        _first_step_of_torch()
        _forget_peak()
        before = peak_memory_bytes()
        _train(build())
        return {"resident_bytes": peak_memory_bytes() - before}


def _build(path: str) -> Callable[[], Step]:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    with Path(path).open("rb") as stream:
        return pickle.load(stream)  # type: ignore[no-any-return]


def _train(step: Step) -> None:
    optimiser = step.optimiser(step.model.parameters())
    for _ in range(STEPS):
        run(step, optimiser)


def _allocated(step: Step) -> float:
    """Largest sum of what torch's CPU allocator gave out and did not get back."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    held = [*step.model.parameters(), *step.model.buffers(), *tensors(list(step.batch))]
    before = sum({storage.data_ptr(): storage.nbytes() for storage in (t.untyped_storage() for t in held)}.values())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _train(step)
    changes: list[tuple[int, int]] = []
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == torch._C._profiler._EventType.Allocation:
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    total = peak = float(before)
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        total += change
        peak = max(peak, total)
    return peak


def _first_step_of_torch() -> None:
    """A tiny step, so that code and pools that torch loads late are not charged to the workload."""
    import torch
    from torch import nn

    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 4))
    _train(
        Step(
            model=net,
            batch=(torch.randn(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)),
            loss=lambda model, x, y: nn.functional.cross_entropy(model(x), y),
            optimiser=torch.optim.AdamW,
        )
    )
    gc.collect()


def _forget_peak() -> None:
    """Linux forgets the largest resident set when told so; elsewhere it stays, and less is charged to the workload."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def main() -> None:
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(MemoryWorker(), sys.stdin, answers)


if __name__ == "__main__":
    main()
