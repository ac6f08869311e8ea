"""What a lever would give, before anything is measured: functions that every lever shares, and the time of a call.

Why calibrated rates and not peaks: a constant-efficiency roofline is tens of per cent off, while rates per
operator kind, taken on this machine on shapes that are not the workload's, are about ten. How much a kind's
rate varies over shapes is known; a part of that is taken as shared by all operators of the kind, the rest
averages out over them, and kinds err independently. Intervals are 90 %; where calibration is missing
they are wide and ``basis`` says so. It refuses to predict page faults: how many there
are is given (counted by replaying the allocator), or they only widen an interval.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ironlaw.fusion import fused, rolled
from ironlaw.rates import (
    ARITHMETIC,
    EAGER,
    LEAST_SIGMA,
    ONE_BY_ONE,
    Z90,
    Rate,
    op_seconds,
    rate_of,
    strange,
    surroundings,
)
from ironlaw.records import Diagnosis, Interval, Ledger, Machine, Op, Prediction, Term, precision

__all__ = ["ARITHMETIC", "EAGER", "amdahl", "call", "fused", "moved", "of_kinds", "seconds"]

_SHARED = 0.3
"""Share of the variance over shapes that all operators of a kind have in common."""
_SAME_SIGMA = 0.03
_CHANGED_SIGMA, _CHANGED_MORE = 0.10, 0.25
"""Log deviation of how much faster the same kernels are with other threads or another layout, and what of that gain
adds to it."""
_CARRIED, _MOST_CARRIED = 0.3, 0.55
"""Share of the log error on the present target that a prediction for another takes over, and the most (1.7x). Over 63
models the error in ONNX Runtime went along with 0.3 of that in eager torch
(docs/decisions/2026-12-07-shapes.md)."""
_CONSTANT_TERMS = (Term.IO, Term.COMM, Term.SYNC, Term.SERIAL)
_MODULES_PER_OP = 1.0
"""Python modules that are called for one eager operator; from none to twice as many."""
_FAULTING_BYTES = 128 * 1024
"""glibc's first mmap threshold: smaller buffers are reused and do not fault again."""
_PAGE_BYTES = 4096.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """Predicted seconds of one kind, their log deviation, and the rate that they came from."""

    seconds: float
    sigma: float
    rate: Rate


def seconds(ledger: Ledger, machine: Machine, *, target: str, dtype: str, threads: int) -> Interval | None:
    """Seconds of one call of the ledger's work on ``target``, or None when nothing at all was measured here.

    ``dtype`` is that of convolutions and products; kinds without such kernels run at fp32 rates.
    Page faults are not in it.
    """
    parts = _parts(ledger, machine, target, dtype, threads)
    return _sum(parts) if parts else None


def call(
    ledger: Ledger, machine: Machine, *, target: str, dtype: str, threads: int, faults: Interval | None = None
) -> Interval | None:
    """Seconds of one whole call from its ledger alone, or None when nothing at all was measured here.

    :func:`seconds`, and for eager torch the modules that call its operators and the page faults of its large
    results. ``faults`` is how many of those a call has (:mod:`ironlaw.measure.page_faults`); where that is not known
    they widen the high end, by as many as there can be, and move nothing.
    """
    found = seconds(ledger, machine, target=target, dtype=dtype, threads=threads)
    if found is None or target not in ONE_BY_ONE:
        return found
    module = machine.ceiling("module_call")
    computing = sum(op.calls for op in ledger.ops if op.kind != "view")
    python_s = _MODULES_PER_OP * computing * module.value if module else 0.0
    paging = _paging(ledger, machine, threads, faults)
    return Interval(
        low=found.low + paging.low,
        value=found.value + python_s + paging.value,
        high=found.high + 2.0 * python_s + paging.high,
    )


def moved(diagnosis: Diagnosis, machine: Machine, *, target: str, dtype: str, threads: int) -> Prediction:
    """Gain in latency of running the diagnosed work there: measured seconds over predicted seconds.

    The error that the same model makes on the present run (by kind where operators were timed) carries over: all
    of it on the same target, a part of it (log scale) to another, since it lies partly in the shapes and partly
    in the present runtime. Kernels that stay the same keep their measured time.
    """
    parts = _parts(diagnosis.ledger, machine, target, dtype, threads)
    if not parts or diagnosis.total_s <= 0:
        return Prediction(
            speedup=Interval(low=0.2, value=1.0, high=20.0),
            basis=f"nothing was calibrated for {target} {dtype}: any gain from 0.2x to 20x is possible",
        )
    there = _sum(_carried(parts, diagnosis, machine, target))
    kept = sum(diagnosis.seconds(term) for term in _CONSTANT_TERMS)
    if target in ONE_BY_ONE and diagnosis.target == EAGER:
        kept += diagnosis.seconds(Term.PAGING)
    slow, value, fast = (kept + x for x in (there.high, there.value, there.low))
    total = diagnosis.total_s
    speedup = Interval(low=total / slow, value=total / value, high=total / fast)
    known = _known(parts, settled=True)
    note = "" if known > 0.5 else f"; only {known:.0%} of that has settled kernel rates, so the interval is wide"
    basis = f"{total * 1e3:.3g} ms measured against {value * 1e3:.3g} ms from {target} {dtype} rates{note}"
    return Prediction(speedup=speedup, basis=basis)


def amdahl(diagnosis: Diagnosis, *, seconds: Interval, factor: Interval, basis: str) -> Prediction:
    """Gain when ``seconds`` of the measured time run ``factor`` times faster (Amdahl 1967).

    ``factor`` below 1 is a slow-down. The interval spans every corner of share and factor.
    """
    total = diagnosis.total_s
    if total <= 0:
        raise ValueError("a diagnosis without a measured time has no shares")

    def gain(touched: float, times: float) -> float:
        share = min(1.0, max(0.0, touched / total))
        return 1.0 / max(1e-9, 1.0 - share + share / max(times, 1e-9))

    corners = [gain(t, f) for t in (seconds.low, seconds.high) for f in (factor.low, factor.high)]
    value = gain(seconds.value, factor.value)
    speedup = Interval(low=min(*corners, value), value=value, high=max(*corners, value))
    return Prediction(speedup=speedup, basis=f"{basis} ({min(1.0, seconds.value / total):.0%} of the time)")


def of_kinds(diagnosis: Diagnosis, kinds: Iterable[str]) -> Interval | None:
    """Measured seconds in operators of these kinds; None when the run had no times per operator.

    A tenth either way: operators are timed in another pass than the total.
    """
    wanted = frozenset(kinds)
    timed = [op for op in diagnosis.ledger.ops if op.time_s is not None]
    if not timed:
        return None
    value = min(diagnosis.total_s, sum(op.time_s or 0.0 for op in timed if op.kind in wanted))
    return Interval(low=0.9 * value, value=value, high=min(diagnosis.total_s, 1.1 * value))


# ---------------------------------------------------------------- inside


def _parts(ledger: Ledger, machine: Machine, target: str, dtype: str, threads: int) -> dict[str, _Part]:
    """Seconds by kind; empty when some kind has neither kernel nor ceiling, or there is no work."""
    around = surroundings(ledger, machine, dtype, threads)
    times: dict[str, list[float]] = defaultdict(list)
    strangest: dict[str, float] = defaultdict(float)
    rates: dict[str, Rate] = {}
    for op in rolled(ledger.ops) if target in ONE_BY_ONE else fused(ledger):
        rate = rates.get(op.kind) or rate_of(machine, target, op.kind, dtype, threads)
        if rate is None:
            return {}
        rates[op.kind] = rate
        times[op.kind].append(op_seconds(op, rate, around))
        strangest[op.kind] = max(strangest[op.kind], strange(op, rate))
    parts = {}
    for kind, found in times.items():
        total = sum(found)
        if total > 0.0:
            effective = total**2 / sum(t * t for t in found)
            own = math.hypot(rates[kind].sigma, strangest[kind])
            sigma = own * math.sqrt(_SHARED + (1.0 - _SHARED) / effective)
            parts[kind] = _Part(seconds=total, sigma=max(LEAST_SIGMA, sigma), rate=rates[kind])
    return parts


def _paging(ledger: Ledger, machine: Machine, threads: int, faults: Interval | None) -> Interval:
    """Seconds of page faults: threads fault side by side or wait for each other, the value is halfway (log scale)."""
    cost = machine.ceiling("fault")
    if cost is None:
        return Interval(low=0.0, value=0.0, high=0.0)
    if faults is None:
        return Interval(low=0.0, value=0.0, high=sum(_pages(op) for op in ledger.ops) * cost.high)
    return Interval(
        low=faults.low * cost.low / threads,
        value=faults.value * cost.value / math.sqrt(threads),
        high=faults.high * cost.high,
    )


def _pages(op: Op) -> float:
    """Pages of an operator's fresh results: half of its activations, where one result is large enough to be mapped."""
    fresh = (op.bytes_high - op.weights_bytes) / 2.0 if op.kind != "view" else 0.0
    return fresh / _PAGE_BYTES if fresh >= _FAULTING_BYTES * op.calls else 0.0


def _sum(parts: dict[str, _Part]) -> Interval:
    total = sum(part.seconds for part in parts.values())
    down = math.hypot(*(part.seconds * (1.0 - math.exp(-Z90 * part.sigma)) for part in parts.values()))
    up = math.hypot(*(part.seconds * (math.exp(Z90 * part.sigma) - 1.0) for part in parts.values()))
    return Interval(low=max(0.05 * total, total - down), value=total, high=total + up)


def _known(parts: dict[str, _Part], *, settled: bool) -> float:
    """The share of the predicted seconds that comes from kernels of the kind itself, and that settled."""
    known = (part.seconds for part in parts.values() if part.rate.own and (part.rate.settled or not settled))
    return sum(known) / sum(part.seconds for part in parts.values())


def _carried(parts: dict[str, _Part], diagnosis: Diagnosis, machine: Machine, target: str) -> dict[str, _Part]:
    """Each kind moved by the log error that the model makes on the present run, and widened by a part of it."""
    now = _parts(diagnosis.ledger, machine, diagnosis.target, _dtype_now(diagnosis.ledger), diagnosis.threads)
    if not now or _known(now, settled=False) < 0.5:
        return parts
    measured = diagnosis.total_s - diagnosis.seconds(Term.PAGING) - sum(diagnosis.seconds(t) for t in _CONSTANT_TERMS)
    overall = measured / sum(part.seconds for part in now.values())
    by_kind = _measured_by_kind(rolled(diagnosis.ledger.ops), measured)
    same_target = target == diagnosis.target or ONE_BY_ONE.issuperset((target, diagnosis.target))
    out = {}
    for kind, part in parts.items():
        seen = by_kind[kind] / now[kind].seconds if by_kind.get(kind) and kind in now else overall
        error = math.log(seen) if seen > 0.0 else 0.0
        if same_target and kind in now and now[kind].rate == part.rate:
            out[kind] = dataclasses.replace(part, seconds=part.seconds * math.exp(error), sigma=_SAME_SIGMA)
            continue
        if same_target and kind in now:
            gain = abs(math.log(part.seconds / now[kind].seconds))
            sigma = _CHANGED_SIGMA + _CHANGED_MORE * gain
            out[kind] = dataclasses.replace(part, seconds=part.seconds * math.exp(error), sigma=sigma)
            continue
        carried = max(-_MOST_CARRIED, min(_MOST_CARRIED, _CARRIED * error))
        sigma = math.hypot(part.sigma, carried)
        out[kind] = dataclasses.replace(part, seconds=part.seconds * math.exp(carried), sigma=sigma)
    return out


def _measured_by_kind(ops: tuple[Op, ...], measured_s: float) -> dict[str, float]:
    """Measured seconds by kind, page faults taken out in proportion; empty when operators were not timed."""
    sums: dict[str, float] = defaultdict(float)
    for op in ops:
        sums[op.kind] += op.time_s or 0.0
    total = sum(sums.values())
    return {kind: seconds * measured_s / total for kind, seconds in sums.items()} if total > 0.0 else {}


def _dtype_now(ledger: Ledger) -> str:
    top = max(ledger.ops, key=lambda op: op.flops or 0.0, default=None)
    return (precision(top.dtype) if top else None) or "fp32"
