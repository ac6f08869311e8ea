"""What a dataset that is read by index is like, from a few of its samples.

Levers of the input need to know it before they are tried: whether the same index gives the same sample again, how large
a sample is as tensors, whether a list of indices gives what fetching one by one and collating gives.
"""

from __future__ import annotations

from typing import Any

_LOOKED_AT = 8
"""Samples that are read twice: a flip of a coin for each would pass as repeating once in 256 times."""


def dataset_facts(source: Any) -> dict[str, Any]:
    """Fields of :class:`ironlaw.records.Loader`; {} for what is no DataLoader over a dataset with a length."""
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(source, DataLoader) or isinstance(source.dataset, IterableDataset):
        return {}
    dataset = source.dataset
    if not hasattr(dataset, "__len__") or len(dataset) == 0:
        return {}
    count = len(dataset)
    rows = sorted({i * (count - 1) // max(1, _LOOKED_AT - 1) for i in range(_LOOKED_AT)})
    once, again = ([dataset[i] for i in rows] for _ in range(2))
    repeats, size = same(once, again), _sample_bytes(once)
    slices = repeats and size is not None and _slices(source, rows)
    return {"samples": count, "sample_bytes": size, "repeats": repeats, "slices": slices}


def same(one: Any, other: Any) -> bool:
    """Whether two nested values are equal, tensors and arrays by content."""
    import numpy as np
    import torch

    if isinstance(one, torch.Tensor | np.ndarray):
        return type(one) is type(other) and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        pairs = len(one) == len(other) if isinstance(other, list | tuple) else False
        return pairs and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _sample_bytes(samples: list[Any]) -> int | None:
    """Of one sample as tensors; None where these do not collate into arrays."""
    from torch.utils.data import default_collate

    from ironlaw.workloads.recipe import tensors_of

    try:
        batch = list(tensors_of(default_collate(samples)))
    except (TypeError, RuntimeError, ValueError):
        return None
    return sum(t.numel() * t.element_size() for t in batch) // len(samples) if batch else None


def _slices(loader: Any, rows: list[int]) -> bool:
    from torch.utils.data import default_collate

    from ironlaw.workloads.recipe import sliced

    if loader.collate_fn is not default_collate or loader.batch_sampler is None:
        return False
    wanted = default_collate([loader.dataset[i] for i in rows])
    try:
        return same(wanted, sliced(loader.dataset, rows))
    except Exception:  # noqa: BLE001 - the user's dataset may raise anything for a list of indices
        return False
