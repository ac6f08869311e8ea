"""What one eager call costs before any arithmetic: an operator on one element, and a module.

The loop around the calls is not subtracted: Python's share is paid by every user, too. Both are
measured under ``inference_mode`` as a served model runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from ironlaw.machine.gate import Found, ceiling

CALLS = 500


class DispatchProbe:
    """``dispatch`` (an addition of one element) and ``module_call`` (a module that returns its input), in s."""

    name: ClassVar[str] = "dispatch"

    def measure(self, threads: int, seconds: float) -> Found:
        import torch

        torch.set_num_threads(threads)
        one, module = torch.ones(1), torch.nn.Identity()
        with torch.inference_mode():
            add = _per_call(lambda: torch.add(one, one), seconds / 2.0)
            call = _per_call(lambda: module(one), seconds / 2.0)
        return (
            ceiling("dispatch", "s", add, threads=threads, note="torch.add of one element"),
            ceiling("module_call", "s", call, threads=threads, note="torch.nn.Identity"),
        )


def _per_call(call: Callable[[], object], seconds: float) -> list[float]:
    for _ in range(CALLS):
        call()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        samples.append((time.perf_counter() - start) / CALLS)
    return samples
