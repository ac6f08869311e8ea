"""How a training job is run otherwise: its loader, its precision, what it keeps for the backward pass.

This file stands alone (torch and NumPy only) and ships with what ``tune`` found, so that what was verified is what is
used: take ``recipe.py`` and ``settings.json`` into your own project. Nothing here changes what is computed, but for
precision, and for random augmentation, which draws other numbers in other processes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate

LAYOUT = "layout.json"
_CHUNK = 64
_NORMS = (nn.modules.batchnorm._BatchNorm,)


# ---------------------------------------------------------------- the loader


def tuned_loader(
    loader: Any,
    *,
    workers: int | None = None,
    prefetch: int | None = None,
    persistent: bool | None = None,
    pinned: bool | None = None,
    sliced: bool = False,
    decoded: str | Path | None = None,
) -> Any:
    """A DataLoader that gives the same batches in the same order; None keeps what ``loader`` has.

    ``sliced`` reads a batch by one index into the dataset's arrays instead of sample by sample; ``decoded`` reads the
    arrays that :func:`decode` wrote instead of the dataset, sliced where the samples are collated by default.
    """
    dataset, collate = loader.dataset, loader.collate_fn
    if decoded is not None:
        dataset = Decoded(decoded)
    if (sliced or decoded is not None) and collate is default_collate and loader.batch_sampler is not None:
        dataset, collate = Sliced(dataset), _as_it_is
    count = loader.num_workers if workers is None else workers
    several = {
        "prefetch_factor": prefetch or loader.prefetch_factor or 2,
        "persistent_workers": loader.persistent_workers if persistent is None else persistent,
        "timeout": loader.timeout,
        "multiprocessing_context": loader.multiprocessing_context,
    }
    order: dict[str, Any] = {"batch_sampler": loader.batch_sampler}
    if loader.batch_sampler is None:
        order = {"sampler": loader.sampler, "batch_size": None}
    return DataLoader(
        dataset,
        collate_fn=collate,
        num_workers=count,
        pin_memory=loader.pin_memory if pinned is None else pinned,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        **order,
        **(several if count else {}),
    )


class Sliced(Dataset):  # type: ignore[misc]  # torch is not followed by the type checker
    """A dataset whose batches are one index into arrays: what fetching and collating sample by sample gives."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[int]) -> Any:
        return sliced(self.dataset, indices)


def sliced(dataset: Any, indices: Sequence[int]) -> Any:
    """The collated batch of ``indices`` by one read. Raises whatever a dataset raises that takes no list."""
    if isinstance(dataset, Subset):
        return sliced(dataset.dataset, [dataset.indices[i] for i in indices])
    if isinstance(dataset, Decoded):
        return dataset.batch(indices)
    if isinstance(dataset, TensorDataset):
        rows = torch.as_tensor(indices)
        return [tensor[rows] for tensor in dataset.tensors]
    found = dataset[list(indices)]
    return list(found) if isinstance(found, tuple) else found


def _as_it_is(batch: Any) -> Any:
    return batch


class Decoded(Dataset):  # type: ignore[misc]
    """The samples that :func:`decode` wrote: arrays on disk, mapped into memory and shared by all workers."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        layout = json.loads((self.folder / LAYOUT).read_text())
        self._shape, self._length = layout["structure"], int(layout["samples"])
        self._arrays: list[Any] | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return _filled(self._shape, iter([torch.from_numpy(np.array(array[index])) for array in self._opened()]))

    def batch(self, indices: Sequence[int]) -> Any:
        """The collated batch of ``indices``."""
        rows = np.asarray(indices)
        return _filled(self._shape, iter([torch.from_numpy(np.ascontiguousarray(a[rows])) for a in self._opened()]))

    def _opened(self) -> list[Any]:
        """Opened where it is read, so that workers share pages instead of copying arrays."""
        if self._arrays is None:
            paths = sorted(self.folder.glob("*.npy"), key=lambda path: int(path.stem))
            self._arrays = [np.load(path, mmap_mode="r") for path in paths]
        return self._arrays

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": None}


def decode(dataset: Any, folder: str | Path) -> int:
    """Read every sample once and write it as arrays into ``folder``; returns the bytes.

    Raises ValueError for samples whose shapes or types differ, or that hold something else than numbers.
    """
    beside = Path(f"{folder}.part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    count, structure, arrays = len(dataset), None, list[Any]()
    for start in range(0, count, _CHUNK):
        chunk = default_collate([dataset[i] for i in range(start, min(start + _CHUNK, count))])
        tensors = list(tensors_of(chunk))
        if structure is None:
            structure = _structure(chunk)
            arrays = [
                np.lib.format.open_memmap(beside / f"{i}.npy", "w+", t.numpy().dtype, (count, *t.shape[1:]))
                for i, t in enumerate(tensors)
            ]
        if [(a.shape[1:], a.dtype) for a in arrays] != [(tuple(t.shape[1:]), t.numpy().dtype) for t in tensors]:
            raise ValueError(f"samples from {start} on have other shapes or types than those before")
        for array, tensor in zip(arrays, tensors, strict=True):
            array[start : start + len(tensor)] = tensor.numpy()
    for array in arrays:
        array.flush()
    (beside / LAYOUT).write_text(json.dumps({"structure": structure, "samples": count}))
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    return sum(int(array.nbytes) for array in arrays)


def _structure(batch: Any) -> Any:
    """How a batch is made of tensors: None for a tensor, a list, or a mapping."""
    if isinstance(batch, torch.Tensor):
        return None
    if isinstance(batch, dict):
        return {key: _structure(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_structure(value) for value in batch]
    raise ValueError(f"a sample holds a {type(batch).__name__}, which is no number")


def tensors_of(batch: Any) -> Iterator[Any]:
    """The tensors of a nested batch, in order."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict | list | tuple):
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors_of(value)


def _filled(structure: Any, tensors: Iterator[Any]) -> Any:
    if structure is None:
        return next(tensors)
    if isinstance(structure, dict):
        return {key: _filled(value, tensors) for key, value in structure.items()}
    return [_filled(value, tensors) for value in structure]


# ---------------------------------------------------------------- precision


def autocast(device: str, precision: str) -> Any:
    """Around the forward pass and the loss: nothing for fp32, else torch's autocast to that dtype."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[precision])


# ---------------------------------------------------------------- checkpointing


def checkpointed(model: Any) -> list[str]:
    """Let the blocks of ``model`` forget their activations and compute them again in the backward pass, in place.

    A chain of composite blocks (layers of an encoder, stages of a ResNet) is checkpointed block by block, a chain of n
    plain layers in about sqrt(n) segments, the last of which is kept (Chen et al. 2016). Returns the names of what is
    computed again; [] where the model has no chain. Parameters and their names stay as they are.
    """
    done = []
    for name, chain in _chains(model, ""):
        children = list(chain.named_children())
        if isinstance(chain, nn.ModuleList) or all(_composite(child) for _, child in children):
            for own, child in children:
                child.forward = functools.partial(_again, child.forward, [child])
                done.append(f"{name}.{own}".lstrip("."))
        elif len(children) >= 4:
            segments = _segments([child for _, child in children])
            chain.forward = functools.partial(_through, segments)
            done += [f"{name}[{len(segment)} layers]" for segment in segments[:-1]]
    return done


def _chains(module: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The outermost chains of blocks that hold parameters."""
    children = list(module.named_children())
    if (
        isinstance(module, nn.Sequential | nn.ModuleList)
        and len(children) > 1
        and any(True for _ in module.parameters())
    ):
        yield name, module
        return
    for own, child in children:
        yield from _chains(child, f"{name}.{own}".lstrip("."))


def _composite(module: Any) -> bool:
    return any(True for _ in module.children())


def _segments(layers: list[Any]) -> list[list[Any]]:
    count = max(2, round(math.sqrt(len(layers))))
    size = math.ceil(len(layers) / count)
    return [layers[start : start + size] for start in range(0, len(layers), size)]


def _through(segments: list[list[Any]], x: Any) -> Any:
    for segment in segments[:-1]:
        x = _again(functools.partial(_run, segment), segment, x)
    return _run(segments[-1], x)


def _run(layers: list[Any], x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


def _again(forward: Callable[..., Any], modules: list[Any], *args: Any, **kwargs: Any) -> Any:
    """``forward`` with its activations dropped; statistics of batch norms are updated by the first pass only."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    contexts = functools.partial(_contexts, modules)
    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)


def _contexts(modules: list[Any]) -> tuple[Any, Any]:
    return contextlib.nullcontext(), _frozen_statistics(modules)


@contextlib.contextmanager
def _frozen_statistics(modules: list[Any]) -> Iterator[None]:
    norms = [m for module in modules for m in module.modules() if isinstance(m, _NORMS) and m.track_running_stats]
    kept = [(norm, norm.momentum, norm.num_batches_tracked.clone()) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum, tracked in kept:
            norm.momentum = momentum
            norm.num_batches_tracked.copy_(tracked)
