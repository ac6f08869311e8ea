"""Arithmetic ceilings: what a large square matrix product reaches per dtype.

One operator, the one that every library tunes most, so that the number is a roof and not an average.
The size is found by doubling while ten products still fit in the time: a dtype that this processor
only emulates (fp16 on most x86, a thousand times slower) is measured at a small size instead of
holding up the probe for minutes, and says so. Outputs are allocated once: faults are another ceiling.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any, ClassVar

from ironlaw.machine.gate import Found, ceiling
from ironlaw.records import Ceiling

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
REPETITIONS = 10
SAMPLE_S = 2e-3
DTYPES = ("fp32", "bf16", "fp16", "int8")


class MatmulProbe:
    """``matmul`` ceilings in FLOP/s (for int8 in OP/s; a multiply-add counts as two)."""

    name: ClassVar[str] = "matmul"

    def measure(self, threads: int, seconds: float) -> Found:
        import torch

        torch.set_num_threads(threads)
        found: list[Ceiling | str] = []
        with torch.inference_mode():
            for dtype in DTYPES:
                try:
                    found.append(_measure(dtype, threads, seconds / len(DTYPES)))
                except (RuntimeError, NotImplementedError) as error:
                    found.append(f"matmul {dtype}: not offered here ({str(error).splitlines()[0]})")
        return tuple(_mark_emulated(found))


def sizes_that_fit(run_s: Callable[[int], float], budget_s: float) -> tuple[int, ...]:
    """The largest size whose repetitions fit the budget, and the one below it.

    ``run_s(size)`` times one product. The next size is tried only while eight times the present
    time is within a quarter of the budget, which bounds a slow emulation whatever its speed.
    """
    elapsed = {SIZES[0]: run_s(SIZES[0])}
    for last, size in itertools.pairwise(SIZES):
        if 8.0 * elapsed[last] > budget_s / 4.0:
            break
        elapsed[size] = run_s(size)
    for repetitions in (REPETITIONS, 3):
        fitting = [size for size, once in elapsed.items() if once * repetitions <= budget_s / 2.0]
        if fitting:
            return tuple(fitting[-2:])
    return SIZES[:1]


def _measure(dtype: str, threads: int, budget_s: float) -> Ceiling:
    products: dict[int, Callable[[], Any]] = {}

    def run_s(size: int) -> float:
        products[size] = product(dtype, size)
        products[size]()
        return min(_timed(products[size]) for _ in range(3 if size <= 256 else 1))

    start = time.perf_counter()
    sizes = sizes_that_fit(run_s, budget_s)
    left = max(budget_s - (time.perf_counter() - start), budget_s / 2.0) / len(sizes)
    found = [
        ceiling("matmul", "FLOP/s", _rates(products[n], n, left), dtype=dtype, threads=threads, note=f"{n} x {n} x {n}")
        for n in sizes
    ]
    return max(found, key=lambda c: c.value)


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def product(dtype: str, size: int, device: str = "cpu") -> Callable[[], Any]:
    """A call that multiplies two square matrices of this dtype into an output that exists already."""
    import torch

    a, b = operands(dtype, size, device)
    out = torch.empty((size, size), dtype=torch.int32 if dtype == "int8" else a.dtype, device=device)
    multiply = torch._int_mm if dtype == "int8" else torch.mm
    return lambda: multiply(a, b, out=out)


def operands(dtype: str, size: int, device: str = "cpu") -> tuple[Any, Any]:
    """Two square matrices whose rows repeat: random numbers for all of a large one would outlast the probe."""
    import torch

    if dtype == "int8":
        one, other = (torch.randint(-8, 8, (size,), dtype=torch.int8, device=device) for _ in range(2))
    else:
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
        one, other = (torch.randn(size, device=device).to(kind) for _ in range(2))
    return one.repeat(size, 1), other.repeat(size, 1)


def _rates(call: Callable[[], Any], size: int, seconds: float) -> list[float]:
    """FLOP/s of samples of at least ``SAMPLE_S`` each, for about ``seconds``."""
    calls = max(1, round(SAMPLE_S / max(min(_timed(call), _timed(call)), 1e-7)))
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append(2.0 * size**3 * calls / (time.perf_counter() - start))
    return samples


def _mark_emulated(found: list[Ceiling | str]) -> list[Ceiling | str]:
    """Adds to the note of a dtype that stays below half the rate of fp32, by their intervals, that it is emulated."""
    base = next((c.low for c in found if isinstance(c, Ceiling) and c.dtype == "fp32"), 0.0)
    return [
        dataclasses.replace(c, note=f"{c.note}; below half of fp32: no fast kernel here")
        if isinstance(c, Ceiling) and c.high < base / 2.0
        else c
        for c in found
    ]
