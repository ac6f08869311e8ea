"""What the demos that train share: a seeded, single-threaded loop that leaves the process as it was."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ironlaw.records import UserError


def require(demo: str, package: str, module: str) -> None:
    """Raises UserError with exit code 4 when ``module`` is not installed, naming ``package``."""
    if importlib.util.find_spec(module) is None:
        raise UserError(f"demo:{demo}", f"needs the package {package}", f"pip install {package}", exit_code=4)


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """One thread (torch, OpenMP, BLAS), deterministic kernels, a fixed seed; the caller's settings afterwards."""
    import torch
    from threadpoolctl import threadpool_limits

    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]), threadpool_limits(1):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict)
            torch.set_num_threads(threads)


def fit_classifier(model: Any, images: Any, labels: Any, *, epochs: int, batch: int, rate: float) -> None:
    """Adam with a one-cycle rate and cross-entropy, in place; ``images`` (examples, ...), ``labels`` (examples,)."""
    import torch
    from torch.nn.functional import cross_entropy

    steps = epochs * -(-len(images) // batch)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(batch):
            optimiser.zero_grad()
            cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()
            schedule.step()
    model.eval()
    model.requires_grad_(False)
