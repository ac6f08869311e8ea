"""What feeds a training job: how it is set up, and its own stages in a pass where nothing else runs.

Stages are timed in this process, sample by sample as the loader's workers would do it: fetching (``dataset[i]``), the
dataset's transform within it where it has one of its own, collating. What a worker costs on top is receiving: the
time of ``next`` while ready batches wait. An iterable that is no DataLoader is timed as a whole: its
stages are its own business.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from ironlaw.measure.steps import calm
from ironlaw.records.training import Loader

TRANSFORMS = ("transform", "transforms", "decode", "target_transform")
"""Attributes of a dataset that hold a callable which it applies to each sample."""
_LONGEST_FILL_S = 5.0


@dataclass(slots=True)
class _Stages:
    fetch_s: list[float] = field(default_factory=list)
    transform_s: list[float] = field(default_factory=list)
    collate_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0


def is_loader(source: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(source, DataLoader)


def ahead(source: Any) -> int:
    """How many batches the source may have ready: those of its workers, and the one that is taken."""
    if not is_loader(source) or not source.num_workers:
        return 0
    return int(source.num_workers * (source.prefetch_factor or 2)) + 1


def inspected(source: Any, epoch: Callable[[], Iterator[Any]], seconds: float) -> Loader:
    """The loader's facts and the medians of its stages, within about ``seconds`` (a slow stage may take longer)."""
    batches = len(source) if hasattr(source, "__len__") and _has_length(source) else None
    if not is_loader(source):
        fetch_s, cpu_share = _whole(epoch, seconds)
        note = "not a DataLoader: fetching and collating cannot be told apart"
        return Loader(kind=type(source).__name__, batches=batches, fetch_s=fetch_s, cpu_share=cpu_share, note=note)
    stages = _stages(source, seconds)
    load_s = statistics.median(stages.fetch_s) + statistics.median(stages.collate_s)
    return Loader(
        kind=type(source).__name__,
        workers=source.num_workers,
        prefetch=source.prefetch_factor or 0,
        persistent=source.persistent_workers,
        pinned=source.pin_memory,
        batches=batches,
        fetch_s=statistics.median(stages.fetch_s),
        transform_s=statistics.median(stages.transform_s) if any(stages.transform_s) else None,
        collate_s=statistics.median(stages.collate_s),
        transfer_s=_receiving(source, epoch, load_s) if source.num_workers else None,
        cpu_share=min(1.0, stages.cpu_s / stages.wall_s) if stages.wall_s else None,
    )


def _stages(loader: Any, seconds: float) -> _Stages:
    """Batches made here, stage by stage; at least one."""
    found = _Stages()
    collate = loader.collate_fn
    with _timed(loader.dataset) as spent:
        end, cpu_start, start = time.perf_counter() + seconds, time.process_time(), time.perf_counter()
        for fetch in _fetches(loader):
            before, transform_s = time.perf_counter(), spent[0]
            samples = fetch()
            fetched = time.perf_counter()
            if samples is None:
                break
            collate(samples)
            done = time.perf_counter()
            found.fetch_s.append(fetched - before)
            found.collate_s.append(done - fetched)
            found.transform_s.append(spent[0] - transform_s)
            if done > end:
                break
        found.cpu_s, found.wall_s = time.process_time() - cpu_start, time.perf_counter() - start
    return found


def _fetches(loader: Any) -> Iterator[Callable[[], Any]]:
    """What makes the samples of each batch, as the loader's own fetchers do."""
    import torch

    dataset = loader.dataset
    if isinstance(dataset, torch.utils.data.IterableDataset):
        yield from _streamed(iter(dataset), loader.batch_size)
    elif loader.batch_sampler is None:
        for index in loader.sampler:
            yield partial(dataset.__getitem__, index)
    else:
        many = getattr(dataset, "__getitems__", None) or (lambda indices: [dataset[i] for i in indices])
        for indices in loader.batch_sampler:
            yield partial(many, indices)


def _streamed(samples: Iterator[Any], size: int | None) -> Iterator[Callable[[], Any]]:
    """Reads of a stream, a batch each; None at its end."""

    def fetch() -> Any:
        found = list(islice(samples, size or 1))
        if not found:
            return None
        return found if size else found[0]

    while True:
        yield fetch


@contextmanager
def _timed(dataset: Any) -> Iterator[list[float]]:
    """While it holds, the transforms of the dataset, and of those that it wraps, add their seconds to one number."""
    spent, replaced = [0.0], []
    for owner in _nested(dataset):
        for name in TRANSFORMS:
            inner = vars(owner).get(name) if hasattr(owner, "__dict__") else None
            if callable(inner):
                replaced.append((owner, name, inner))
                setattr(owner, name, _Timed(inner, spent))
    try:
        yield spent
    finally:
        for owner, name, inner in replaced:
            setattr(owner, name, inner)


class _Timed:
    """A callable that adds its seconds to a sum, and is its inner one in all else."""

    def __init__(self, inner: Callable[..., Any], spent: list[float]) -> None:
        self._inner, self._spent = inner, spent

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._inner(*args, **kwargs)
        finally:
            self._spent[0] += time.perf_counter() - start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _nested(dataset: Any) -> Iterable[Any]:
    """The dataset, and what it wraps (as ``Subset`` does)."""
    seen: list[Any] = []
    while dataset is not None and not any(dataset is one for one in seen):
        seen.append(dataset)
        dataset = getattr(dataset, "dataset", None)
    return seen


def _receiving(loader: Any, epoch: Callable[[], Iterator[Any]], load_s: float) -> float:
    """Seconds of ``next`` when the workers have a batch ready."""
    batches = epoch()
    next(batches)
    time.sleep(min(_LONGEST_FILL_S, 2.0 * load_s * (loader.prefetch_factor or 2)))
    calm()
    taken = []
    for _ in range(max(1, loader.num_workers * (loader.prefetch_factor or 2) - 1)):
        start = time.perf_counter()
        if next(batches, None) is None:
            break
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) if taken else 0.0


def _whole(epoch: Callable[[], Iterator[Any]], seconds: float) -> tuple[float, float]:
    """Seconds of making one batch, and the share of them that is CPU time."""
    taken = []
    batches = epoch()
    cpu_start, start = time.process_time(), time.perf_counter()
    before = start
    for _ in batches:
        now = time.perf_counter()
        taken.append(now - before)
        if now > start + seconds:
            break
        before = time.perf_counter()
    wall_s = time.perf_counter() - start
    return statistics.median(taken), min(1.0, (time.process_time() - cpu_start) / wall_s)


def _has_length(source: Any) -> bool:
    try:
        len(source)
    except TypeError:  # a DataLoader over a dataset without length
        return False
    return True
