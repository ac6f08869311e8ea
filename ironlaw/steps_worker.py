"""The process that runs the steps of one training job and measures them; it knows no lever.

``python -m ironlaw.steps_worker`` speaks the JSON lines of :mod:`ironlaw.worker`, is started fresh for every launch
with its environment and affinity, and dies with its parent, as the loader's workers die with it. The job comes as the
pickle that :mod:`ironlaw.workloads.parcel` wrote into our own store. What is wrong with the user's part of it is an
answer of its own (``wrong``), so that the parent can say whose line it was.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironlaw.measure import loader, steps
from ironlaw.records import Execution, UserError, from_data, to_data
from ironlaw.worker import die_with_parent, peak_memory_bytes, serve, warm_up
from ironlaw.workloads.configure import configured
from ironlaw.workloads.dataset import dataset_facts
from ironlaw.workloads.job import Job, batch_size

Answer = dict[str, Any]
KEPT_BATCHES = 8
KEPT_BYTES = 256 << 20
"""Cached input: at most so many batches, and no more than fit in this."""


def told(action: Callable[..., Answer]) -> Callable[..., Answer]:
    """An action whose UserErrors are answers."""

    @functools.wraps(action)
    def answered(*args: Any, **request: Any) -> Answer:
        try:
            return action(*args, **request)
        except UserError as error:
            return {"wrong": {"given": error.given, "wrong": error.wrong, "remedy": error.remedy}}

    return answered


class StepsWorker:
    """State of one worker: an open job, its endless feed, and a few batches that are kept."""

    def __init__(self) -> None:
        self.job: Job
        self.feed: steps.Feed
        self.ring: steps.Ring
        self.step_s = 0.0

    @told
    def open(self, path: str, execution: dict[str, Any]) -> Answer:
        """Open the job under that execution and take a checked first step."""
        import torch

        from ironlaw.workloads.parcel import unpack
        from ironlaw.workloads.source import blamed

        how = from_data(Execution, execution)
        torch.set_num_threads(how.threads)
        torch.manual_seed(0)
        try:
            training = unpack(Path(path))
        except Exception as error:
            raise blamed(error, "training job", "cannot be read in a fresh process") from error
        self.job = Job(configured(training, how, Path(path).parent))
        self.feed = steps.Feed(self.job.epoch)
        batch = self.feed.take()
        loss = self.job.first_step(batch)
        return {"loss": loss, "batch": batch_size(batch), "device": str(self.job.device)}

    @told
    def warm(self, limit_s: float) -> Answer:
        """Steps until they take the same time, and a few batches kept for the passes with cached input."""
        kept = [self.feed.take()]
        while len(kept) < KEPT_BATCHES and (len(kept) + 1) * _bytes(kept[0]) <= KEPT_BYTES:
            kept.append(self.feed.take())
        self.ring = steps.Ring(kept)
        calls, self.step_s, converged = warm_up(lambda: steps.one_step(self.job, self.feed.take), limit_s)
        return {"steps": calls, "step_s": self.step_s, "converged": converged}

    @told
    def turns(self, seconds: float, block_s: float) -> Answer:
        """Blocks on fresh and on cached batches in turn."""
        ready = loader.ahead(self.job.source)
        found = steps.turns(
            self.job, self.feed, self.ring, seconds=seconds, block_s=block_s, step_s=self.step_s, ahead=ready
        )
        return {"launch": steps.launch_data(found), "peak_memory_bytes": peak_memory_bytes()}

    @told
    def inspect(self, seconds: float) -> Answer:
        """The loader's own stages, before anything else runs."""
        self.feed = steps.Feed(self.job.epoch)
        steps.calm()
        try:
            found = loader.inspected(self.job.source, self.job.epoch, seconds)
            return {"loader": to_data(dataclasses.replace(found, **dataset_facts(self.job.source)))}
        except UserError:
            raise
        except Exception as error:
            from ironlaw.workloads.source import blamed

            raise blamed(error, "data", "raises when its stages are timed one by one") from error

    @told
    def operators(self, seconds: float, least: int, most: int) -> Answer:
        """Operators of a step on cached input, with their times; empty on a device that works on its own."""
        from ironlaw.measure import profile_torch

        if self.job.device.type != "cpu":
            return {"ops": []}
        steps.calm()
        start = time.perf_counter()
        self._step()
        calls = max(least, min(most, int(seconds / (time.perf_counter() - start))))
        return {"ops": to_data(profile_torch.profile(self._step, calls))}

    @told
    def ledger(self, cache_bytes: int | None) -> Answer:
        """The counting pass over one step on cached input."""
        import torch

        from ironlaw.measure.ledger_torch import count

        held = [*self.job.model.parameters(), *self.job.model.buffers()]
        batch = self.ring.take()

        def step() -> None:
            with torch.enable_grad():
                steps.one_step(self.job, lambda: batch)

        found = count(step, batch=batch_size(batch), weights=held, cache_bytes=cache_bytes, source="training step")
        ops = tuple(op for op in found.ops if not op.name.startswith("profiler::"))  # marks that the optimiser sets
        return {"ledger": to_data(dataclasses.replace(found, ops=ops))}

    @told
    def memory(self) -> Answer:
        """The peak of the first steps by part, predicted on fake tensors."""
        from ironlaw.measure.training_memory import predicted_peak

        return {"memory": to_data(predicted_peak(self.job.as_step(self.ring.take())))}

    def _step(self) -> None:
        steps.one_step(self.job, self.ring.take)


def _bytes(batch: Any) -> int:
    """Bytes of all tensors in a batch, at least 1."""
    if hasattr(batch, "element_size"):
        return max(1, int(batch.numel() * batch.element_size()))
    parts = batch.values() if hasattr(batch, "values") else batch if isinstance(batch, list | tuple) else ()
    return max(1, sum(_bytes(part) for part in parts))


def main() -> None:
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(StepsWorker(), sys.stdin, answers)


if __name__ == "__main__":
    main()
