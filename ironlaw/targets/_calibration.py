"""Kernel rates of a graph runtime from the profile of calibration graphs, and fixed costs from chains.

A rate is work over time *less* the fixed cost of a call, because predictions add that cost back for every
operator. Quantiles run over shapes: the spread that a prediction must carry is how much a kind's
efficiency depends on shape, not how noisy one shape is (medians over calls take care of that).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ironlaw.records import Interval, KernelPoint, KernelRate
from ironlaw.targets import _calibration_graphs as graphs
from ironlaw.targets._calibration_cases import Case

if TYPE_CHECKING:
    import numpy as np

_CHAIN_SHARE = 0.25
_LEAST_SHARE = 0.2
"""Of a measured time, the least that counts as work once the fixed cost is taken off."""


class Runner(Protocol):
    """One calibration model loaded in the runtime."""

    def call(self) -> None:
        """One run on the inputs it was made with."""

    def node_seconds(self, calls: int) -> Mapping[str, Sequence[float]]:
        """Seconds of each node by its name, one entry a call."""


Opener = Callable[[bytes, "dict[str, np.ndarray]", str, bool], Runner]
"""(model, inputs, dtype, whether to profile) -> a runner."""


def rates(
    target: str, dtypes: Sequence[str], threads: int, seconds: float, open_model: Opener
) -> tuple[KernelRate, ...]:
    """Rates by kind and dtype within about ``seconds``, half a share for each dtype's graph and its chains."""
    share = seconds / len(dtypes)
    out: list[KernelRate] = []
    for dtype in dtypes:
        fixed = _fixed_costs(dtype, share * _CHAIN_SHARE, open_model)
        cases = graphs.cases(dtype)
        model, feeds = graphs.graph(cases)
        runner = open_model(model, feeds, dtype, True)
        calls = _calls_for(runner, share * (1 - _CHAIN_SHARE))
        measured = runner.node_seconds(calls)
        for kind in dict.fromkeys(case.kind for case in cases):
            own = [case for case in cases if case.kind == kind]
            rate = _rate(target, kind, dtype, threads, own, measured, fixed)
            if rate is not None:
                out.append(rate)
    return tuple(out)


def case_seconds(case: Case, measured: Mapping[str, Sequence[float]]) -> float | None:
    """Median seconds a call of the nodes of a case, or None when the runtime fused it out of sight."""
    own = [statistics.median(times) for name, times in measured.items() if name.startswith(case.name)]
    return sum(own) if own and sum(own) > 0 else None


def _rate(
    target: str,
    kind: str,
    dtype: str,
    threads: int,
    own: Sequence[Case],
    measured: Mapping[str, Sequence[float]],
    fixed: Mapping[str, float],
) -> KernelRate | None:
    call_s = fixed.get(kind, fixed.get("elementwise", min(fixed.values(), default=0.0)))
    seen = [(case, t) for case in own if (t := case_seconds(case, measured)) is not None]
    values = [case.work / max(t - call_s, _LEAST_SHARE * t) for case, t in seen]
    if len(values) < 2:
        return None
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return KernelRate(
        target=target,
        kind=kind,
        dtype=dtype,
        threads=threads,
        unit="FLOP/s" if graphs.is_arithmetic(kind) else "B/s",
        rate=Interval(low=tenths[0], value=statistics.median(values), high=tenths[-1]),
        call_s=call_s,
        shapes=len(values),
        points=tuple(_point(case, t, call_s) for case, t in seen) if graphs.is_arithmetic(kind) else (),
    )


def _point(case: Case, seconds: float, call_s: float) -> KernelPoint:
    """One call; of a recurrent layer one step of it, without what a call costs besides."""
    weights = float(sum(array.size for array in case.weights.values()))
    if case.kind != "recurrent":
        return KernelPoint(op=case.kind, work=case.work, weights=weights, seconds=max(seconds, call_s))
    steps = case.inputs[0][1][0]
    inside_s = max(seconds - call_s, _LEAST_SHARE * seconds)
    return KernelPoint(op=case.kind, work=case.work / steps, weights=weights, seconds=inside_s / steps)


def _fixed_costs(dtype: str, seconds: float, open_model: Opener) -> dict[str, float]:
    """Seconds of one tiny operator by kind: a chain of them over its length, the runtime's own entry included.

    A chain that the runtime cannot compile is left out (OpenVINO 2026.4 fuses twelve int8 products into one
    subgraph and then finds it too large); :func:`_rate` takes another kind's cost in its place.
    """
    kinds = [kind for kind in graphs.KINDS_OF.get(dtype, graphs.CHAIN_KINDS) if kind in graphs.CHAIN_KINDS]
    out = {}
    for kind in kinds:
        model, feeds = graphs.chain(kind, dtype)
        try:
            runner = open_model(model, feeds, dtype, False)
        except RuntimeError:
            continue
        out[kind] = _median_call(runner, seconds / len(kinds)) / graphs.CHAIN_LENGTH
    return out


def _median_call(runner: Runner, seconds: float) -> float:
    end = time.perf_counter() + seconds
    times: list[float] = []
    while len(times) < 20 or (time.perf_counter() < end and len(times) < 2000):
        start = time.perf_counter()
        runner.call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[len(times) // 4 :])


def _calls_for(runner: Runner, seconds: float) -> int:
    """Calls that fit, after one that warms up: at least 3, at most 60."""
    runner.call()
    start = time.perf_counter()
    runner.call()
    return max(3, min(60, int(0.8 * seconds / max(1e-6, time.perf_counter() - start))))
