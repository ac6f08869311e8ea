"""Carries a ledger to a published machine: what would dominate there, whether it fits, whether it would help.

Why only bounds: a catalogue holds peaks, and kernels reach a part of them that nobody has measured there. So
every operator gets the least time that the peak in its own dtype and the bandwidth allow; a dtype without a
published peak is said and never replaced by another's. Traffic is the ledger's interval, best counted again for
the cache there (``counted``); without that its low end falls to the weights. What is neither arithmetic nor
traffic here (dispatch above all) is not known there: it is taken as 0 to as much as here.

A machine *would not help* when even the bound stays under 1.05x, and *would help* only when it is ahead at the
efficiency that kernels reach here, with every byte moved and all dispatch kept. In between is undetermined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ironlaw.diagnose.bounds import WORTH
from ironlaw.diagnose.fitting import fit
from ironlaw.hardware import PublishedMachine, Sourced
from ironlaw.records import Diagnosis, Elsewhere, Interval, Ledger, Op, OpElsewhere, Term, TermTime, precision

LEFT_OUT = 0.01
"""Share of the FLOPs (or of the time here) that may have no peak there and still leave a bound from above."""
_WARM = 0.5
"""Share of a cache that a call may need and still find warm the next time."""
_NAMES = {"float64": "fp64", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}


def elsewhere(
    diagnosis: Diagnosis,
    there: PublishedMachine,
    *,
    counted: Ledger | None = None,
    weights_bytes: float | None = None,
) -> Elsewhere:
    """The diagnosed call on that machine.

    Args:
        counted: the same call counted with the cache of that machine (None of it published: without end).
        weights_bytes: all weights of the model; without it those that the call reads.
    """
    ledger = counted or diagnosis.ledger
    placed = _placed(ledger, diagnosis, there, counted_again=counted is not None)
    fixed = _fixed(diagnosis)
    whole = _nothing_missing(placed, diagnosis, there)
    terms = _terms(placed, fixed, there)
    dominant, why = _dominant(terms, whole)
    serial, overlapped = (_bound(placed, fixed, overlap) for overlap in (False, True))
    fits, fit_text = fit(ledger, there, weights_bytes)
    at_most = diagnosis.total_s / overlapped.low if overlapped.low > 0.0 else None
    helps, advice = _advice(diagnosis, serial, at_most, fixed, whole=whole, fits=fits)
    return Elsewhere(
        name=there.name,
        title=there.title,
        kind=there.kind,
        cache_bytes=there.cache_bytes.value if there.cache_bytes else None,
        counted_again=counted is not None,
        ops=tuple(one.record for one in placed),
        terms=terms,
        dominant=dominant,
        why=why,
        serial_bound_s=serial if whole else None,
        overlapped_bound_s=overlapped if whole else None,
        at_most=at_most,
        speedup=_speedup(diagnosis.total_s, serial, overlapped, at_most) if whole else None,
        helps=helps,
        advice=advice,
        fits=fits,
        fit=fit_text,
        notes=_notes(placed, there, counted_again=counted is not None),
        sources=_sources(placed, there),
    )


# ---------------------------------------------------------------- operators


@dataclass(frozen=True, kw_only=True, slots=True)
class _Placed:
    """An operator there; ``arithmetic_s`` and ``traffic_s`` as in its record, ``dtype`` as the catalogue names it."""

    op: Op
    dtype: str
    here_s: float | None
    arithmetic_s: float | None
    traffic_s: Interval | None

    @property
    def side(self) -> Term | None:
        if self.arithmetic_s is None or self.traffic_s is None or not max(self.arithmetic_s, self.traffic_s.high):
            return None
        if self.traffic_s.low >= self.arithmetic_s:
            return Term.MEMORY
        return Term.COMPUTE if self.traffic_s.high <= self.arithmetic_s else None

    def seconds(self, end: str, *, overlap: bool) -> float:
        """Least seconds with the traffic at ``low``, ``value`` or ``high``; what is not known counts as 0."""
        arithmetic = self.arithmetic_s or 0.0
        traffic: float = getattr(self.traffic_s, end) if self.traffic_s else 0.0
        return max(arithmetic, traffic) if overlap else arithmetic + traffic

    @property
    def record(self) -> OpElsewhere:
        op = self.op
        return OpElsewhere(
            name=op.name,
            kind=op.kind,
            dtype=op.dtype,
            shape=op.shape,
            calls=op.calls,
            here_s=self.here_s,
            arithmetic_s=self.arithmetic_s,
            traffic_s=self.traffic_s,
            side=self.side,
        )


def _placed(ledger: Ledger, diagnosis: Diagnosis, there: PublishedMachine, *, counted_again: bool) -> list[_Placed]:
    ops = [op for op in ledger.ops if op.flops is None or op.flops > 0.0 or op.bytes_high > 0.0]
    least = [min(op.bytes_low, op.bytes_high if counted_again else op.weights_bytes) for op in ops]
    warm = there.cache_bytes is not None and sum(least) <= _WARM * there.cache_bytes.value
    timed = {(op.name, op.shape, op.dtype): op.time_s for op in diagnosis.ledger.ops}
    bandwidth = there.memory_bandwidth_bytes_per_s
    found = []
    for op, low in zip(ops, least, strict=True):
        dtype = _NAMES.get(op.dtype) or precision(op.dtype) or op.dtype
        peak = there.peak(dtype)
        known = None if op.flops is None else 0.0 if not op.flops else op.flops / peak.value if peak else None
        found.append(
            _Placed(
                op=op,
                dtype=dtype,
                here_s=timed.get((op.name, op.shape, op.dtype)),
                arithmetic_s=known,
                traffic_s=_traffic(0.0 if warm else low, op.bytes_high, bandwidth.value) if bandwidth else None,
            )
        )
    return found


def _traffic(low: float, high: float, bandwidth: float) -> Interval:
    return Interval(low=low / bandwidth, value=(low + high) / 2.0 / bandwidth, high=high / bandwidth)


def _without_peak(placed: Sequence[_Placed]) -> dict[str, float]:
    """Share of the counted FLOPs by dtype for which that machine has no peak."""
    total = sum(one.op.flops or 0.0 for one in placed)
    found: dict[str, float] = {}
    for one in placed:
        if one.op.flops and one.arithmetic_s is None:
            found[one.dtype] = found.get(one.dtype, 0.0) + one.op.flops / total
    return found


def _nothing_missing(placed: Sequence[_Placed], diagnosis: Diagnosis, there: PublishedMachine) -> bool:
    """Whether time there can be bounded from above as well."""
    if not placed or there.memory_bandwidth_bytes_per_s is None:
        return False
    uncounted = sum(one.here_s or diagnosis.total_s for one in placed if one.op.flops is None)
    return sum(_without_peak(placed).values()) <= LEFT_OUT and uncounted <= LEFT_OUT * diagnosis.total_s


# ---------------------------------------------------------------- terms and bounds


def _fixed(diagnosis: Diagnosis) -> Interval:
    """Everything here that is neither arithmetic nor traffic."""
    others = [one.seconds for one in diagnosis.terms if one.term not in (Term.MEMORY, Term.COMPUTE)]
    value = sum(max(0.0, one.value) for one in others)
    high = min(diagnosis.total_s, sum(max(0.0, one.high) for one in others))
    return Interval(low=0.0, value=value, high=max(value, high))


def _terms(placed: Sequence[_Placed], fixed: Interval, there: PublishedMachine) -> tuple[TermTime, ...]:
    terms = []
    if there.memory_bandwidth_bytes_per_s is not None:
        terms.append(_memory(placed, there.memory_bandwidth_bytes_per_s.value))
    if any(one.arithmetic_s for one in placed):
        terms.append(_compute(placed))
    how = f"dispatch and the like take {_time(fixed.value)} here and are not known there"
    return (*terms, TermTime(term=Term.LATENCY, seconds=fixed, evidence=how))


def _memory(placed: Sequence[_Placed], bandwidth: float) -> TermTime:
    mine = [(one, one.traffic_s) for one in placed if one.side is not Term.COMPUTE and one.traffic_s]
    value = sum(t.value for one, t in mine if t.value >= (one.arithmetic_s or 0.0))
    high = sum(t.high for _, t in mine)
    low = sum(t.low for one, t in mine if one.side is Term.MEMORY)
    evidence = f"up to {high * bandwidth / 1e6:.3g} MB at {bandwidth / 1e9:.4g} GB/s"
    return TermTime(term=Term.MEMORY, seconds=Interval(low=low, value=max(low, value), high=high), evidence=evidence)


def _compute(placed: Sequence[_Placed]) -> TermTime:
    mine = [(one, one.arithmetic_s) for one in placed if one.side is not Term.MEMORY and one.arithmetic_s]
    high = sum(s for _, s in mine)
    low = sum(s for one, s in mine if one.side is Term.COMPUTE or one.traffic_s is None)
    value = sum(s for one, s in mine if one.traffic_s is None or s > one.traffic_s.value)
    flops = sum(one.op.flops or 0.0 for one, _ in mine)
    evidence = f"{flops / 1e9:.3g} GFLOP at the peaks of {', '.join(sorted({one.dtype for one, _ in mine})) or 'none'}"
    return TermTime(term=Term.COMPUTE, seconds=Interval(low=low, value=max(low, value), high=high), evidence=evidence)


def _dominant(terms: Sequence[TermTime], whole: bool) -> tuple[Term | None, str]:
    """The term whose interval lies above all others, or none and between what it is undetermined."""
    said = "; ".join(f"{one.term} {_range(one.seconds)} ({one.evidence})" for one in terms)
    if not whole:
        return None, f"undetermined: not all of it can be placed there; {said}"
    first = max(terms, key=lambda one: one.seconds.low)
    if all(one.seconds.high < first.seconds.low for one in terms if one is not first):
        return first.term, f"{first.term} would dominate: {said}"
    memory, compute = terms[0].seconds, terms[1].seconds if len(terms) > 2 else None
    apart = ""
    if compute is None or memory.low > compute.high:
        apart = "apart from dispatch, memory; "
    elif compute.low > memory.high:
        apart = "apart from dispatch, compute; "
    return None, f"undetermined: {apart}{said}"


def _bound(placed: Sequence[_Placed], fixed: Interval, overlap: bool) -> Interval:
    low, value, high = (sum(one.seconds(end, overlap=overlap) for one in placed) for end in ("low", "value", "high"))
    return Interval(low=low, value=value + fixed.value, high=high + fixed.high)


def _speedup(total_s: float, serial: Interval, overlapped: Interval, at_most: float | None) -> Interval | None:
    if at_most is None:
        return None
    return Interval(low=total_s / serial.high, value=total_s / overlapped.value, high=at_most)


# ---------------------------------------------------------------- words


def _advice(
    diagnosis: Diagnosis, serial: Interval, at_most: float | None, fixed: Interval, *, whole: bool, fits: bool | None
) -> tuple[bool | None, str]:
    if fits is False:
        return False, "would not help: it does not fit"
    if at_most is not None and at_most < WORTH:
        return False, f"would not help: at most {_times(at_most)} the speed here, at its published peaks"
    most = f"at most {_times(at_most)}" if at_most is not None else "no bound"
    eta = _efficiency(diagnosis)
    if not whole or eta is None:
        return None, f"undetermined: {most}, and no lower end is known"
    least = diagnosis.total_s / ((serial.high - fixed.high) / eta + fixed.high)
    if least >= WORTH:
        return True, f"would help: {_times(least)} at the efficiency reached here ({eta:.2f}), {most} at its peaks"
    return None, (
        f"undetermined: {most} at its peaks, {_times(least)} if kernels reach {eta:.2f} of them as here and "
        f"{_time(fixed.high)} of dispatch and the like stay"
    )


def _efficiency(diagnosis: Diagnosis) -> float | None:
    """What the work here reaches of this machine's measured roofs; None when they were not measured."""
    work = diagnosis.seconds(Term.MEMORY) + diagnosis.seconds(Term.COMPUTE)
    if diagnosis.overlapped_bound_s is None or work <= 0.0:
        return None
    roof = diagnosis.overlapped_bound_s.low - diagnosis.seconds(Term.LATENCY)
    return min(1.0, roof / work) if roof > 0.0 else None


def _notes(placed: Sequence[_Placed], there: PublishedMachine, *, counted_again: bool) -> tuple[str, ...]:
    notes = [
        f"no {dtype} peak is published for it: {share:.1%} of the FLOPs are not placed, nor put at another dtype's"
        for dtype, share in _without_peak(placed).items()
    ]
    if uncounted := sorted({one.op.name for one in placed if one.op.flops is None}):
        notes.append(f"not counted: {', '.join(uncounted)}")
    if there.memory_bandwidth_bytes_per_s is None:
        notes.append("its memory bandwidth is not published: traffic is not placed")
    if there.cache_bytes is None:
        notes.append("its cache is not published: traffic is taken from first touches upwards")
    elif not counted_again:
        notes.append("traffic was not counted again for its cache: it is taken from the weights upwards")
    if (tf32 := there.peak("tf32")) and any(one.dtype == "fp32" and one.arithmetic_s for one in placed):
        notes.append(
            f"fp32 products could run as tf32, which rounds otherwise, at up to {tf32.value / 1e12:.4g} TFLOP/s"
        )
    if there.kind in ("gpu", "tpu"):
        notes.append("copies between host and device are not in it")
    return tuple(notes)


def _sources(placed: Sequence[_Placed], there: PublishedMachine) -> tuple[str, ...]:
    used: list[tuple[str, Sourced | None, str]] = [
        (f"{dtype} peak", there.peak(dtype), "FLOP/s") for dtype in sorted({p.dtype for p in placed if p.arithmetic_s})
    ]
    used += [
        ("memory bandwidth", there.memory_bandwidth_bytes_per_s, "B/s"),
        ("cache", there.cache_bytes, "B"),
        ("memory", there.memory_bytes, "B"),
        ("flash", there.flash_bytes, "B"),
    ]
    return tuple(f"{what} {one.value:.4g} {unit}: {one.source}" for what, one, unit in used if one)


def _range(seconds: Interval) -> str:
    return f"{_time(seconds.low)} to {_time(seconds.high)}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.3g} us"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100.0 else f"{ratio:.3g}x"
