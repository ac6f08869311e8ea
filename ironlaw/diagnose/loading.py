"""Silent killers of an input pipeline, each from what was measured of the step and of the loader's own stages.

How many workers hide loading follows from two numbers: what a batch takes to load and what a step takes without
waiting. Workers are called too few only where the step waits and they have no time left, too many only where it does
not and they have plenty. Where loading is CPU work and the cores are taken, more workers are never the remedy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ironlaw.records import Finding, Term
from ironlaw.records.training import Loader, StepTimes

NOTABLE = 0.05
"""Share of a step from which on a killer is told."""
_UNNOTICED = 0.02
_BUSY, _IDLE = 0.7, 0.5
"""Workers that load for more than this share of the step are busy, for less than that idle."""
_CPU_BOUND = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One job: ``cores`` that it may use, ``threads`` that train."""

    times: StepTimes
    loader: Loader
    cores: int
    threads: int

    def share(self, seconds: float) -> float:
        return seconds / self.times.total.value

    @property
    def waits(self) -> bool:
        return self.times.wait.low > 0.0 and self.share(self.times.wait.value) >= NOTABLE

    @property
    def busy(self) -> float | None:
        """Share of a step that each worker loads; None where loading was not timed or there are no workers."""
        if self.loader.load_s is None or not self.loader.workers:
            return None
        return self.loader.load_s / (self.loader.workers * self.times.total.value)

    @property
    def wanted(self) -> int | None:
        """Workers that hide loading behind the step."""
        step_s = self.times.work_s + self.times.copy.value + self.times.rest.value
        return None if self.loader.load_s is None else max(1, math.ceil(self.loader.load_s / step_s))

    @property
    def crowded(self) -> bool:
        """Whether loading is CPU work for which no core is free."""
        return (self.loader.cpu_share or 0.0) >= _CPU_BOUND and self.threads + self.loader.workers >= self.cores


def loading_findings(times: StepTimes, loader: Loader, *, cores: int, threads: int) -> tuple[Finding, ...]:
    """Every one that was seen, the largest share of the step first, those of unknown share last."""
    case = Case(times=times, loader=loader, cores=cores, threads=threads)
    found = [one for one in (detect(case) for detect in _DETECTORS) if one is not None]
    return tuple(sorted(found, key=lambda one: -1.0 if one.share is None else one.share, reverse=True))


def too_few_workers(case: Case) -> Finding | None:
    """The step waits, and whoever loads has no time left."""
    loader, busy = case.loader, case.busy
    if not case.waits or (loader.workers and (busy is None or busy < _BUSY)):
        return None
    took = f"a batch takes {_ms(loader.load_s)} to load" if loader.load_s is not None else "loading"
    if loader.workers:
        who = f"{took}, each of {loader.workers} workers loads {min(1.0, busy or 0.0):.0%} of the time"
    else:
        who = f"{took} and nothing loads beside the step (no workers)"
    return Finding(
        kind="too_few_workers",
        attacks=Term.IO,
        share=case.share(case.times.wait.value),
        evidence=f"a step waits {_ms(case.times.wait.value)} of {_ms(case.times.total.value)}; {who}",
        remedy=_more_workers(case),
    )


def _more_workers(case: Case) -> str:
    loader, wanted = case.loader, case.wanted
    if loader.collate_s is None:
        return "load in workers: give a torch.utils.data.DataLoader with num_workers, or prefetch in a thread"
    less = "decode less (once, into a file or memory), or in batches"
    if case.crowded and case.cores == 1:
        return f"loading is CPU work and there is one core for it and the step: {less}"
    if case.crowded and loader.workers:
        return (
            f"loading is CPU work and all {case.cores} cores are taken, more workers would only share them: {less}, "
            "or leave the loader a core with fewer training threads"
        )
    if case.crowded:
        return (
            f"num_workers=1 overlaps as far as the training threads leave time on {case.cores} cores; "
            f"loading is CPU work, so that more is won where you {less}"
        )
    return f"num_workers={wanted}, persistent_workers=True"


def slow_receiving(case: Case) -> Finding | None:
    """The step waits though batches are ready: taking them over from a worker is what takes time."""
    received, busy = case.loader.transfer_s, case.busy
    if not case.waits or received is None or received < _IDLE * case.times.wait.value or (busy or 0.0) >= _BUSY:
        return None
    return Finding(
        kind="slow_receiving",
        attacks=Term.IO,
        share=case.share(min(received, case.times.wait.value)),
        evidence=f"receiving a ready batch takes {_ms(received)} of the {_ms(case.times.wait.value)} that a step waits",
        remedy="return few large tensors (collate in the worker, no lists of small objects), or num_workers=0",
    )


def idle_workers(case: Case) -> Finding | None:
    """Nobody waits, and fewer workers would do."""
    wanted, busy = case.wanted, case.busy
    if wanted is None or busy is None or busy >= _IDLE or case.loader.workers <= wanted + 1:
        return None
    if case.share(case.times.wait.value) >= _UNNOTICED:
        return None
    lost = case.times.contention
    return Finding(
        kind="idle_workers",
        attacks=Term.IO,
        share=case.share(lost.value) if lost.low > 0.0 else None,
        evidence=f"{case.loader.workers} workers load {busy:.0%} of the time and the step does not wait",
        remedy=f"num_workers={wanted}: each worker keeps memory and a copy of the dataset's objects",
    )


def oversubscription(case: Case) -> Finding | None:
    """Workers and training threads want more cores than there are, and the step is slower for it."""
    loader, lost = case.loader, case.times.contention
    each = max(1.0, loader.worker_cpu or 0.0)
    demand = loader.workers * each + case.threads
    if not loader.workers or demand <= case.cores or lost.low <= 0.0 or case.share(lost.value) < NOTABLE:
        return None
    threads = f" of up to {loader.worker_threads} threads" if loader.worker_threads else ""
    return Finding(
        kind="oversubscription",
        attacks=Term.IO,
        share=case.share(lost.value),
        evidence=(
            f"{loader.workers} workers{threads} ({loader.worker_cpu or 0.0:.2f} CPUs each) beside {case.threads} "
            f"training threads on {case.cores} cores: the rest of a step takes {_ms(lost.value)} longer than alone"
        ),
        remedy=(
            f"num_workers={max(1, case.cores - case.threads)} at most, one thread in each (cv2.setNumThreads(0), "
            "OMP_NUM_THREADS=1), or fewer training threads; decoding once and keeping the result needs neither"
        ),
    )


def epoch_restarts(case: Case) -> Finding | None:
    """Beginning an epoch takes a notable share of it."""
    share = case.share(case.times.restart.value)
    batches = case.loader.batches
    if not batches or share < NOTABLE or case.times.restart.low <= 0.0:
        return None
    persistent = case.loader.persistent or not case.loader.workers
    return Finding(
        kind="epoch_restarts",
        attacks=Term.IO,
        share=share,
        evidence=f"beginning an epoch takes {_ms(case.times.restart.value * batches)} for {batches} batches",
        remedy="longer epochs: repeat the samples within one" if persistent else "persistent_workers=True",
    )


def unpinned_copies(case: Case) -> Finding | None:
    """Copies to a device from memory that is not pinned."""
    share = case.share(case.times.copy.value)
    if case.times.device == "cpu" or case.loader.pinned or share < NOTABLE:
        return None
    return Finding(
        kind="unpinned_copies",
        attacks=Term.IO,
        share=share,
        evidence=f"{_ms(case.times.copy.value)} of a step copies to {case.times.device} from pageable memory",
        remedy="pin_memory=True in the DataLoader, and .to(device, non_blocking=True)",
    )


_DETECTORS = (too_few_workers, slow_receiving, idle_workers, oversubscription, epoch_restarts, unpinned_copies)


def _ms(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1e3:.3g} ms"
