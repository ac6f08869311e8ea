"""What eager operators of each kind reach on calibration shapes (:mod:`ironlaw.targets._torch_cases`).

Why shapes of our own: rates fitted on the workload would hide its residual. Each is called in turn with the others, as
in a network, and over and over, with everything in the innermost caches; what a model finds lies between. The rate is
an interval over shapes, so that a kind whose kernels vary much predicts with a wide interval, and every shape is kept,
so that a like one predicts with a narrow one. The fixed cost of a call is that of the tiniest shape.
It refuses fp16, whose rate here is the ceiling's business (emulated, it would take minutes).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from ironlaw.measure.kinds import ARITHMETIC
from ironlaw.rates import EAGER
from ironlaw.records import Interval, KernelPoint, KernelRate
from ironlaw.shapes import COLD
from ironlaw.targets import _torch_cases

_DTYPES = ("float32", "bfloat16")
_WEIGHED = {"float32": 2.0, "bfloat16": 1.0, "int8": 1.0}
"""What most models run in is calibrated longer."""
_MIN_CALLS = 3
_GROUP = 8
"""Shapes that are called in turn: together more than an inner cache holds, and less than the last."""


def rates(threads: int, seconds: float) -> tuple[KernelRate, ...]:
    """One rate per kind and dtype at ``threads`` intra-op threads, within about ``seconds``."""
    import torch

    makers = _torch_cases.makers()
    jobs = [(how, kind, dtype, make) for how, own in makers.items() for kind, make in own.items() for dtype in _DTYPES]
    jobs.append((EAGER, "matmul", "int8", _torch_cases.int8_products))
    share = seconds / sum(_WEIGHED[dtype] for _, _, dtype, _ in jobs)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            return tuple(
                _rate(how, kind, dtype, threads, list(make(dtype)), share * _WEIGHED[dtype])
                for how, kind, dtype, make in jobs
            )
    finally:
        torch.set_num_threads(before)


def _rate(how: str, kind: str, dtype: str, threads: int, cases: list[_torch_cases.Case], seconds: float) -> KernelRate:
    in_turn = _in_turn([case.call for case in cases], 0.5 * seconds)
    repeated = [_repeated(case.call, 0.5 * seconds / len(cases)) for case in cases]
    call_s = repeated[0]
    found = sorted(
        case.work / max(taken - call_s, 0.05 * call_s)
        for case, taken in zip(cases[1:], in_turn[1:], strict=True)
        if case.op != COLD
    )
    low, high = (statistics.quantiles(found, n=10)[i] for i in (0, 8))
    return KernelRate(
        target=how,
        kind=kind,
        dtype=dtype,
        threads=threads,
        unit="FLOP/s" if kind in ARITHMETIC else "B/s",
        rate=Interval(low=max(low, found[0]), value=statistics.median(found), high=min(high, found[-1])),
        call_s=call_s,
        shapes=len(found),
        points=tuple(
            _point(case, taken, again, call_s)
            for case, taken, again in zip(cases, in_turn, repeated, strict=True)
            if case.steps > 1 or kind != "recurrent"
        ),
    )


def _point(case: _torch_cases.Case, in_turn_s: float, repeated_s: float, call_s: float) -> KernelPoint:
    """One call; of a recurrent layer one step of it, without what a call costs besides."""
    steps, fixed_s = case.steps, call_s if case.steps > 1 else 0.0
    return KernelPoint(
        op=case.op,
        work=case.work / steps,
        weights=case.weights,
        seconds=max(in_turn_s - fixed_s, 0.05 * in_turn_s) / steps,
        repeated_s=None if case.op == COLD else max(repeated_s - fixed_s, 0.05 * repeated_s) / steps,
    )


def _in_turn(calls: Sequence[Callable[[], Any]], budget_s: float) -> list[float]:
    """Medians of calls among others, in groups of about equal length."""
    size = math.ceil(len(calls) / math.ceil(len(calls) / _GROUP))
    groups = [calls[first : first + size] for first in range(0, len(calls), size)]
    return [taken for group in groups for taken in _rounds(group, budget_s * len(group) / len(calls))]


def _rounds(calls: Sequence[Callable[[], Any]], budget_s: float) -> list[float]:
    """Medians over rounds in which each is called once, after the others, as in a network: none finds its own data in
    the innermost caches."""
    for call in calls:
        call()
    samples: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + budget_s
    while len(samples[0]) < _MIN_CALLS or time.perf_counter() < end:
        for call, own in zip(calls, samples, strict=True):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in samples]


def _repeated(call: Callable[[], Any], budget_s: float) -> float:
    """Median of warm calls within the budget; small ones are timed in blocks above the clock's cost."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    inner = max(1, min(1000, int(50e-6 / max(first, 1e-7))))
    samples: list[float] = []
    end = start + budget_s
    while len(samples) < _MIN_CALLS or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(inner):
            call()
        samples.append((time.perf_counter() - begin) / inner)
    return statistics.median(samples)
