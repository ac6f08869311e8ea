"""The process that runs a training job as an artefact: a call is one step, its input included.

``python -m ironlaw.training_worker`` answers what :mod:`ironlaw.worker` answers, so that jobs are measured as models
are, interleaved and stopped while idle, loader workers included. Three actions are its own: a short trajectory from
the first weights, which shows whether another execution computes the same; training to the end; decoding the data.
The job is the pickle that :mod:`ironlaw.workloads.parcel` wrote into our own store.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ironlaw.measure.steps import Feed, one_step
from ironlaw.records import Artefact, Certificate, Op, from_data
from ironlaw.worker import MAX_CALLS_PER_BLOCK, Answer, Worker, die_with_parent, serve, timed_block, used_since
from ironlaw.workloads.configure import configured
from ironlaw.workloads.job import Job
from ironlaw.workloads.parcel import FILE, unpack

SEED = 0


class StepSession:
    """An open job whose call is one step on the next batch."""

    def __init__(self, job: Job, feed: Feed) -> None:
        self.job, self.feed = job, feed

    def prepare(self, arrays: Sequence[np.ndarray]) -> None:
        """Nothing: input comes from the job's own loader."""

    def call(self, native: Any) -> None:
        one_step(self.job, self.feed.take)

    def fetch(self, result: Any) -> list[np.ndarray]:
        """The loss of one more batch, for the check that it is finite."""
        loss = self.job.forward(self.job.copy(self.feed.take()))
        return [np.asarray(float(loss.detach()))]

    def profile(self, native: Any, calls: int) -> tuple[Op, ...]:
        """Operators of a job are timed in its diagnosis, on cached input."""
        return ()

    def certify(self) -> Certificate:
        """The precision in which each convolution and product gave its output in one more step, threads, loader."""
        import torch

        layers: dict[str, Any] = {name: m for name, m in self.job.model.named_modules() if isinstance(m, _layers())}
        seen: dict[str, str] = {}
        hooks = [m.register_forward_hook(_noting(seen, name)) for name, m in layers.items()]
        self.call(None)
        for hook in hooks:
            hook.remove()
        narrow = {name for name, dtype in seen.items() if dtype != "float32"}
        return Certificate(
            eligible=len(layers),
            converted=len(narrow),
            precisions=tuple(sorted(seen.items())),
            fallbacks=tuple(sorted(set(layers) - narrow)),
            threads=torch.get_num_threads(),
            proven=len(seen) == len(layers),
            evidence=(f"{len(_children())} loader processes were running",),
        )


class TrainingWorker(Worker):
    """State of one worker: a configured job."""

    session: StepSession | None

    def ready(self, name: str) -> Answer:
        import torch  # noqa: F401

        return {}

    def load(self, artefact: dict[str, Any]) -> Answer:
        """Open the job and take a checked first step."""
        self.artefact = from_data(Artefact, artefact)
        start = time.perf_counter()
        job = self._opened(self.artefact, SEED)
        feed = Feed(job.epoch)
        load_s = time.perf_counter() - start
        start = time.perf_counter()
        loss = job.first_step(feed.take())
        self.session, self.native = StepSession(job, feed), None
        return {"load_s": load_s, "first_s": time.perf_counter() - start, "finite": bool(np.isfinite(loss))}

    def block(self, seconds: float, min_calls: int) -> Answer:
        """As of a model; memory and CPU time of loader workers are counted in."""
        before, others_s, start = resource.getrusage(resource.RUSAGE_SELF), _others_s(), time.perf_counter()
        samples = timed_block(self._call, seconds, min_calls, MAX_CALLS_PER_BLOCK)
        wall_s, beside_s = time.perf_counter() - start, max(0.0, _others_s() - others_s)
        used = used_since(before)
        used["user_s"] += beside_s
        used["peak_memory_bytes"] += _others_bytes()
        return {"ns": samples, "wall_s": wall_s, "beside_s": beside_s, **used}

    def trajectory(self, artefact: dict[str, Any], steps: int, batches: str, own: bool, out: str) -> Answer:
        """``steps`` steps from the first weights; the parameters and buffers before and after are written to ``out``.

        With ``own`` the batches come from the job's loader, and are kept in ``batches`` unless it exists; without, from
        that file.
        """
        import torch

        job = self._opened(from_data(Artefact, artefact), SEED)
        kept = Path(batches)
        taken = [Feed(job.epoch).take] if own else []
        given = None if own else pickle.loads(kept.read_bytes())
        before = _state(job.model)
        torch.manual_seed(SEED)
        seen = []
        for step in range(steps):
            batch = given[step] if given is not None else taken[0]()
            seen.append(batch)
            state = torch.get_rng_state()
            torch.manual_seed(step)
            one_step(job, lambda batch=batch: batch)  # type: ignore[misc]
            torch.set_rng_state(state)
        if own and not kept.exists():
            kept.write_bytes(pickle.dumps(seen))
        np.savez(out, before=before, after=_state(job.model))
        return {}

    def train(self, artefact: dict[str, Any], steps: int, seed: int, out: str) -> Answer:
        """The whole job; the trained weights go to ``out`` as safetensors."""
        from safetensors.torch import save_file

        job = self._opened(from_data(Artefact, artefact), seed)
        feed = Feed(job.epoch)
        start = time.perf_counter()
        for _ in range(steps):
            one_step(job, feed.take)
        seconds = time.perf_counter() - start
        save_file(
            {name: value.detach().cpu().contiguous().clone() for name, value in job.model.state_dict().items()}, out
        )
        return {"seconds": seconds}

    def decode(self, job: str, folder: str) -> Answer:
        """Write the dataset of the packed ``job`` as arrays."""
        from ironlaw.workloads.recipe import decode

        return {"bytes": decode(Job(unpack(Path(job))).source.dataset, folder)}

    def _opened(self, artefact: Artefact, seed: int) -> Job:
        import torch

        torch.set_num_threads(artefact.execution.threads)
        torch.manual_seed(seed)
        folder = Path(artefact.example).parent
        return Job(configured(unpack(folder / FILE), artefact.execution, folder))


def _layers() -> tuple[type, ...]:
    from torch import nn

    return (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.RNNBase)


def _noting(seen: dict[str, str], name: str) -> Callable[..., None]:
    def note(module: Any, inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        seen[name] = str(first.dtype).removeprefix("torch.")

    return note


def _state(model: Any) -> np.ndarray:
    """All parameters and floating buffers as one vector of doubles."""
    values = [
        value.detach().double().flatten().cpu() for value in model.state_dict().values() if value.is_floating_point()
    ]
    return np.concatenate([value.numpy() for value in values])


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _others_s() -> float:
    """CPU seconds of this process's children, ended ones included."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for child in _children():
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return float(total)


def _others_bytes() -> int:
    """Memory that the children do not share with this process."""
    total = 0
    for child in _children():
        try:
            total += child.memory_full_info().uss
        except psutil.Error:
            continue
    return total


def main() -> None:
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(TrainingWorker(), sys.stdin, answers)


if __name__ == "__main__":
    main()
