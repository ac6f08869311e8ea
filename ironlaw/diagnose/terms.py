"""Adds shares up to the terms of the iron law: they sum to the measured time, what is unexplained is residual.

Widths say what is not known: the spread of a fault's cost, operators that straddle the ridge, times that had to be
fitted into the total, and the gap outside operators, which counts as the framework's own time only up to what
its dispatches can explain.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from ironlaw.diagnose.shares import Roofs, Share, Split, limit
from ironlaw.records import Execution, Interval, Ledger, Machine, Measurement, Term, TermTime

_REFUSED = " (probed while others had the CPU)"
_GAP_PER_DISPATCH = 10.0
"""Python, modules and guards around one dispatch: up to this many times its cost is the framework's."""
_PASSES_DIFFER = 0.05
"""Operators are timed in another pass than the total; their sum is not known better than this."""
_DRIFTS = 0.3
"""Log of how far apart two passes are before their difference says that one was disturbed."""
_ESTIMATES_DIFFER = 0.3
"""The same for operators that nobody timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Paging:
    """Seconds of page faults in one call, and where they come from."""

    seconds: Interval
    evidence: str


def paging_of(measurement: Measurement, machine: Machine, execution: Execution, total_s: float) -> Paging:
    """Faults times their measured cost, at most the measured system time where the system reports it.

    System time is CPU time: on one thread it is stretched by the wall time that others took. Several threads fault
    side by side where the kernel lets them, or wait for each other: the low end divides by the threads that were busy,
    the value lies halfway on the log scale. Giving pages back is paging too: the high end goes up to the system
    time, at most twice the faults.
    """
    faults = measurement.faults_per_call
    ceiling, doubtful = limit(machine, "fault", cost=True)
    system_s = measurement.system_s_per_call * _stretch(measurement, execution)
    most = 0.95 * total_s
    if faults < 1.0:
        return Paging(seconds=Interval(low=0.0, value=0.0, high=0.0), evidence="no page faults")
    if ceiling is None:
        text = f"{faults:,.0f} page faults a call; their cost was not measured here"
        return Paging(seconds=Interval(low=0.0, value=0.0, high=min(most, system_s)), evidence=text)
    threads = max(1.0, min(measurement.threads_effective, float(execution.threads)))
    bounded = 0.0 < system_s < faults * ceiling.value
    serial = system_s if bounded else faults * ceiling.value
    value = min(most, serial / math.sqrt(threads))
    low = min(value, min(faults * ceiling.low, 0.8 * serial if bounded else serial) / threads)
    high = min(most, 1.2 * serial if bounded else max(faults * ceiling.high, min(system_s, 2.0 * serial)))
    bound = f", bounded by {_ms(system_s)} of system time" if bounded else ""
    bound += _REFUSED if doubtful else ""
    return Paging(
        seconds=Interval(low=low, value=value, high=max(value, high)),
        evidence=f"{faults:,.0f} page faults a call at {ceiling.value * 1e6:.2f} us each{bound}",
    )


def _stretch(measurement: Measurement, execution: Execution) -> float:
    """Wall seconds for one CPU second of a single thread: above 1 when it had to wait for a CPU."""
    cpu_s = measurement.cpu_s_per_call
    return max(1.0, measurement.latency_s.p50 / cpu_s) if execution.threads == 1 and cpu_s > 0.0 else 1.0


def terms_of(split: Split, paging: Paging, limits: Roofs, total_s: float, *, eager: bool) -> tuple[TermTime, ...]:
    """Terms in a fixed order; their values sum to ``total_s``."""
    inside = sum(share.paging_s for share in split.shares)
    faults = inside if split.timed else paging.seconds.value
    gap = split.gap_s
    if split.timed and faults < paging.seconds.value:
        extra = min(gap, paging.seconds.value - faults)
        faults, gap = faults + extra, gap - extra
    paging_term = TermTime(term=Term.PAGING, seconds=_around(paging.seconds, faults), evidence=paging.evidence)
    latency = _latency(split, gap, limits, total_s, eager)
    unsure = paging_term.seconds.high - paging_term.seconds.value, faults - paging_term.seconds.low
    memory, compute = (_side(split, of, unsure, limits, total_s) for of in (Term.MEMORY, Term.COMPUTE))
    known = [memory, compute, latency, paging_term]
    rest = max(0.0, total_s - sum(one.seconds.value for one in known))
    if not split.timed:
        known = [*(_reaching(one, rest, total_s) for one in known[:3]), paging_term]
    return (*known, _residual(split, limits, rest))


def bounds_of(ledger: Ledger, limits: Roofs, latency_s: float) -> tuple[Interval | None, Interval | None]:
    """The two forms of the iron law from work and ceilings: serial (sum) and overlapped (maximum)."""
    if limits.dram is None or not limits.compute:
        return None, None
    rows = []
    for op in ledger.ops:
        peak = limits.arithmetic(op.dtype)
        arithmetic = (op.flops or 0.0) / peak.value if peak else 0.0
        rows.append((arithmetic, limits.fastest_s(op)[0], op.bytes_high / limits.dram.value))
    serial = [latency_s + sum(row[0] + row[i] for row in rows) for i in (1, 2)]
    overlapped = [latency_s + sum(max(row[0], row[i]) for row in rows) for i in (1, 2)]
    return (
        Interval(low=serial[0], value=serial[0], high=max(serial)),
        Interval(low=overlapped[0], value=overlapped[0], high=max(overlapped)),
    )


def _latency(split: Split, gap: float, limits: Roofs, total_s: float, eager: bool) -> TermTime:
    inner = sum(share.fixed_s for share in split.shares)
    dispatch = limits.dispatch
    explained = min(gap, _GAP_PER_DISPATCH * dispatch.value * (split.calls + 1)) if dispatch and split.timed else 0.0
    spread = (dispatch.low / dispatch.value, dispatch.high / dispatch.value) if dispatch else (0.5, 2.0)
    value = inner + explained
    what = "dispatches" if eager else "operators"
    outside = f", {_ms(explained)} of the framework outside operators" if explained else ""
    return TermTime(
        term=Term.LATENCY,
        seconds=Interval(
            low=min(value, inner * spread[0] + 0.6 * explained),
            value=value,
            high=max(value, min(total_s, inner * spread[1] + explained + 0.3 * (gap - explained))),
        ),
        evidence=f"{split.calls} {what}: {_ms(inner)} of fixed cost in them{outside}",
    )


def _side(split: Split, term: Term, unsure: tuple[float, float], limits: Roofs, total_s: float) -> TermTime:
    counted = [share for share in split.shares if share.memory is not None]
    parts = [(share, _part(share, term)) for share in counted]
    value = sum(part * share.work_s for share, part in parts)
    low = sum(share.work_s for share, part in parts if share.sure and part == 1.0)
    high = sum(share.work_s for share, part in parts if part > 0.0 or not share.sure)
    work = sum(share.work_s for share in counted) or 1.0
    apart = _PASSES_DIFFER if split.timed else _ESTIMATES_DIFFER
    strained = max(0.0, abs(math.log(split.drift)) - _DRIFTS) / 4.0
    blur = (apart + 0.5 * split.squeezed + strained) * value
    slack = value / work
    interval = Interval(
        low=min(value, max(0.0, low - blur - unsure[0] * slack)),
        value=value,
        high=max(value, min(total_s, high + blur + unsure[1] * slack)),
    )
    return TermTime(term=term, seconds=interval, evidence=_work_evidence(split, parts, term, limits, value))


def _part(share: Share, term: Term) -> float:
    memory = share.memory or 0.0
    return memory if term is Term.MEMORY else 1.0 - memory


def _work_evidence(split: Split, parts: list[tuple[Share, float]], term: Term, limits: Roofs, value: float) -> str:
    mine = [(share, part) for share, part in parts if part > 0.0 and share.work_s > 0.0]
    if not mine:
        return "no operator on this side of the ridge"
    roof = sum(share.roof_s * part for share, part in mine)
    straddling = sum(share.work_s * part for share, part in mine if 0.0 < part < 1.0)
    if term is Term.MEMORY:
        low, high = (sum(getattr(s.op, name) * p for s, p in mine) for name in ("bytes_low", "bytes_high"))
        amount = f"{low / 1e6:.3g} to {high / 1e6:.3g} MB"
    else:
        amount = f"{sum((s.op.flops or 0.0) * p for s, p in mine) / 1e9:.3g} GFLOP"
    eta = roof / value if value else 0.0
    words = [f"{amount} in {sum(s.op.calls for s, _ in mine)} operators ({_leading(mine)})"]
    if split.timed:
        words.append(f"eta {eta:.2f}: headroom {_ms(max(0.0, value - roof))}")
    else:
        words.append("no times per operator: from calibrated rates and roofs")
    if straddling:
        words.append(f"{_ms(straddling)} straddle the ridge")
    if abs(math.log(split.drift)) > _DRIFTS:
        words.append(f"the timed pass took {split.drift:.2g}x as long as the profiled one: times are scaled")
    if split.squeezed > 0.01:
        words.append(f"operator times were {split.squeezed:.0%} over the total and fitted")
    return "; ".join(words)


def _leading(mine: list[tuple[Share, float]]) -> str:
    kinds: dict[str, float] = {}
    for share, part in mine:
        kinds[share.op.kind] = kinds.get(share.op.kind, 0.0) + part * share.work_s
    top = sorted(kinds.items(), key=lambda pair: -pair[1])[:3]
    return ", ".join(f"{kind} {_ms(seconds)}" for kind, seconds in top)


def _residual(split: Split, limits: Roofs, seconds: float) -> TermTime:
    unknown = sorted({share.op.name for share in split.shares if share.memory is None and share.work_s > 0.0})
    if unknown and (limits.dram is None or not limits.compute):
        text = "operators cannot be placed: no ceiling of bandwidth or arithmetic was measured on this machine"
    else:
        text = f"not counted: {', '.join(unknown[:5])}" if unknown else "outside operators, unexplained"
    width = 0.05 * seconds
    return TermTime(
        term=Term.RESIDUAL,
        seconds=Interval(low=max(0.0, seconds - width), value=seconds, high=seconds + width),
        evidence=text if seconds > 0.0 else "nothing left over",
    )


def _reaching(one: TermTime, more_s: float, total_s: float) -> TermTime:
    """Without times per operator, what is not explained may belong to any of them."""
    high = max(one.seconds.value, min(total_s, one.seconds.high + more_s))
    return dataclasses.replace(one, seconds=dataclasses.replace(one.seconds, high=high))


def _around(interval: Interval, value: float) -> Interval:
    return Interval(low=min(interval.low, value), value=value, high=max(interval.high, value))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
