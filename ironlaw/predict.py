"""What a lever would give, before anything is measured: three functions that every lever shares.

Why calibrated rates and not peaks: a constant-efficiency roofline is tens of per cent off, while rates per
operator kind, taken on this machine on shapes that are not the workload's, are about ten. How much a kind's
rate varies over shapes is known; a part of that is taken as shared by all operators of the kind, the rest
averages out over them, and kinds err independently. Intervals are 90 %; where calibration is missing
they are wide and ``basis`` says so. It refuses to predict page faults (measured only).

Fusion is told from the ledger alone: a graph runtime drops views, folds a batch norm into the convolution
before it, and runs an activation, bias or residual addition inside the convolution or product that made
its operand; so as many of them vanish as there are such producers.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ironlaw.records import (
    Diagnosis,
    Interval,
    KernelRate,
    Ledger,
    Machine,
    Op,
    Prediction,
    Term,
    precision,
)

EAGER = "torch"
"""The target that runs operators one by one; every other target is taken to fuse."""

ARITHMETIC = frozenset({"conv", "depthwise", "matmul", "attention", "recurrent"})
_PRODUCERS = frozenset({"conv", "depthwise", "matmul"})
_BATCH_NORMS = ("batch_norm", "batchnormalization")
_ACTIVATIONS = frozenset(
    [
        "relu",
        "relu6",
        "hardtanh",
        "clamp",
        "clamp_min",
        "clamp_max",
        "clip",
        "sigmoid",
        "silu",
        "hardswish",
        "hardsigmoid",
        "gelu",
        "tanh",
        "leaky_relu",
        "leakyrelu",
        "elu",
        "mish",
        "softplus",
        "swish",
        "prelu",
        "erf",
    ]
)
_ADDS = frozenset({"add", "sum", "sub"})
_ITEM_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0, "float64": 8.0}
_UNKNOWN_ETA = Interval(low=0.12, value=0.4, high=1.0)
"""Efficiency against a ceiling when no kernel was calibrated: the range seen over kinds on CPUs."""
_Z90 = 1.645
_TENTHS = 2.563
"""Standard deviations between the 10 % and the 90 % quantile."""
_SHARED = 0.3
"""Share of the variance over shapes that all operators of a kind have in common."""
_LEAST_SIGMA, _PROXY_SIGMA, _UNSETTLED_SIGMA, _SAME_SIGMA = 0.10, 0.42, 0.5, 0.03
_EXPLAINED = 0.6
"""Part of the deviation of products over shapes that is left once their reuse is known."""
_MOST_CARRIED = 0.55
"""Log of the most that an error on the present target changes a prediction for another (1.7x)."""
_CONSTANT_TERMS = (Term.IO, Term.COMM, Term.SYNC, Term.SERIAL)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rate:
    """Work per second of a kind (with its tenth and ninetieth percentile), the log deviation of that over
    shapes, and the fixed cost of a call."""

    rate: float
    slow: float
    fast: float
    sigma: float
    per_byte: bool
    call_s: float
    own: bool
    settled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """Predicted seconds of one kind, their log deviation, and the rate that they came from."""

    seconds: float
    sigma: float
    rate: _Rate


def seconds(ledger: Ledger, machine: Machine, *, target: str, dtype: str, threads: int) -> Interval | None:
    """Seconds of one call of the ledger's work on ``target``, or None when nothing at all was measured here.

    ``dtype`` is that of convolutions and products; kinds without such kernels run at fp32 rates.
    Page faults are not in it.
    """
    parts = _parts(ledger, machine, target, dtype, threads)
    return _sum(parts) if parts else None


def moved(diagnosis: Diagnosis, machine: Machine, *, target: str, dtype: str, threads: int) -> Prediction:
    """Gain in latency of running the diagnosed work there: measured seconds over predicted seconds.

    The error that the same model makes on the present run (by kind where operators were timed) carries over: all
    of it on the same target, half of it (log scale) to another, since it lies partly in the shapes and partly
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
    if target == EAGER == diagnosis.target:
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


def fused(ledger: Ledger) -> tuple[Op, ...]:
    """The operators that a graph runtime is left with; calls and work are scaled where some of several vanish."""
    producers = sum(op.calls for op in ledger.ops if op.kind in _PRODUCERS)
    convolutions = sum(op.calls for op in ledger.ops if op.kind in ("conv", "depthwise"))
    kept = [op for op in ledger.ops if op.kind != "view"]
    kept = _drop(kept, _is_batch_norm, convolutions)
    left = producers - sum(op.calls for op in kept if _base(op) in _ACTIVATIONS)
    kept = _drop(kept, lambda op: _base(op) in _ACTIVATIONS, producers)
    return tuple(_drop(kept, lambda op: _base(op) in _ADDS and op.kind == "elementwise", max(0, left)))


# ---------------------------------------------------------------- inside


def _parts(ledger: Ledger, machine: Machine, target: str, dtype: str, threads: int) -> dict[str, _Part]:
    """Seconds by kind; empty when some kind has neither kernel nor ceiling, or there is no work."""
    stream = _stream_rate(ledger, machine, dtype, threads)
    times: dict[str, list[float]] = defaultdict(list)
    rates: dict[str, _Rate] = {}
    for op in ledger.ops if target == EAGER else fused(ledger):
        rate = rates.get(op.kind) or _rate(machine, target, op.kind, dtype, threads)
        if rate is None:
            return {}
        rates[op.kind] = rate
        times[op.kind].append(_op_seconds(op, rate, dtype, stream))
    parts = {}
    for kind, found in times.items():
        total = sum(found)
        if total > 0.0:
            effective = total**2 / sum(t * t for t in found)
            sigma = rates[kind].sigma * math.sqrt(_SHARED + (1.0 - _SHARED) / effective)
            parts[kind] = _Part(seconds=total, sigma=max(_LEAST_SIGMA, sigma), rate=rates[kind])
    return parts


def _sum(parts: dict[str, _Part]) -> Interval:
    total = sum(part.seconds for part in parts.values())
    down = math.hypot(*(part.seconds * (1.0 - math.exp(-_Z90 * part.sigma)) for part in parts.values()))
    up = math.hypot(*(part.seconds * (math.exp(_Z90 * part.sigma) - 1.0) for part in parts.values()))
    return Interval(low=max(0.05 * total, total - down), value=total, high=total + up)


def _op_seconds(op: Op, rate: _Rate, dtype: str, stream: float | None) -> float:
    if op.kind == "view":
        return op.calls * rate.call_s
    shrink = _shrink(op, dtype) if op.kind in _PRODUCERS else 1.0
    busy = op.bytes_high * shrink / rate.rate if rate.per_byte else (op.flops or 0.0) / _at_reuse(op, rate)
    if stream and op.weights_bytes:
        busy = max(busy, op.weights_bytes * shrink / stream)
    return busy + op.calls * rate.call_s


def _at_reuse(op: Op, rate: _Rate) -> float:
    """The rate of a product by how often it uses an element: one row streams its weights, many rows reuse them.

    The slow end of the calibrated rates belongs to 2 FLOPs an element (one row), the fast end to 512 and above.
    """
    if op.kind != "matmul" or not op.flops or op.bytes_high <= 0.0:
        return rate.rate
    elements = op.bytes_high / _ITEM_BYTES.get(precision(op.dtype) or "", 4.0)
    place = min(1.0, max(0.0, (math.log2(max(op.flops / elements, 1e-9)) - 1.0) / 8.0))
    near, far, part = (rate.slow, rate.rate, 2.0 * place) if place < 0.5 else (rate.rate, rate.fast, 2.0 * place - 1.0)
    return float(near * (far / near) ** part)


def _shrink(op: Op, dtype: str) -> float:
    now = _ITEM_BYTES.get(precision(op.dtype) or "", 4.0)
    return min(1.0, _ITEM_BYTES.get(precision(dtype) or "", now) / now)


def _stream_rate(ledger: Ledger, machine: Machine, dtype: str, threads: int) -> float | None:
    """Bytes a second at which weights arrive: from the last-level cache when all of them stay there."""
    weights = sum(op.weights_bytes * _shrink(op, dtype) for op in ledger.ops)
    size = max((cache.size_bytes for cache in machine.caches), default=0)
    found = machine.ceiling("cache" if weights < 0.5 * size else "dram", threads=threads)
    return found.value if found else None


def _rate(machine: Machine, target: str, kind: str, dtype: str, threads: int) -> _Rate | None:
    """The calibrated rate, else a kind or dtype beside it (wider), else a ceiling (widest)."""
    proxy = "matmul" if kind in ARITHMETIC else "elementwise"
    if kind == "view":
        kernel = _kernel(machine, target, kind, "fp32", threads)
        cost = kernel.call_s if kernel else _dispatch(machine, target)
        return _Rate(
            rate=1.0, slow=1.0, fast=1.0, sigma=_LEAST_SIGMA, per_byte=True, call_s=cost, own=True, settled=True
        )
    for name in (kind, proxy):
        for kernel_dtype in (dtype, "fp32"):
            kernel = _kernel(machine, target, name, kernel_dtype, threads)
            if kernel is not None:
                return _from_kernel(kernel, 0.0 if name == kind else _PROXY_SIGMA, threads)
    ceiling = (
        machine.ceiling("matmul", dtype=dtype, threads=threads)
        or machine.ceiling("matmul", dtype="fp32", threads=threads)
        if kind in ARITHMETIC
        else machine.ceiling("dram", threads=threads)
    )
    if ceiling is None:
        return None
    return _Rate(
        rate=ceiling.value * _UNKNOWN_ETA.value,
        slow=ceiling.value * _UNKNOWN_ETA.low,
        fast=ceiling.value * _UNKNOWN_ETA.high,
        sigma=math.log(_UNKNOWN_ETA.high / _UNKNOWN_ETA.low) / (2.0 * _Z90),
        per_byte=kind not in ARITHMETIC,
        call_s=_dispatch(machine, target),
        own=False,
        settled=False,
    )


def _dispatch(machine: Machine, target: str) -> float:
    found = machine.ceiling("dispatch")
    return found.value if found and target == EAGER else 0.0


def _from_kernel(kernel: KernelRate, extra_sigma: float, threads: int) -> _Rate:
    """Wider when it stands in for another kind, or was calibrated with fewer threads than asked."""
    more = math.sqrt(max(1.0, threads / max(1, kernel.threads)))
    value = kernel.rate.value
    slow, fast = max(min(kernel.rate.low, value), 1e-3 * value), max(kernel.rate.high, value)
    explained = _EXPLAINED if kernel.kind == "matmul" and extra_sigma == 0.0 else 1.0
    return _Rate(
        rate=value * more,
        slow=slow * more,
        fast=fast * more,
        sigma=math.hypot(
            explained * math.log(fast / slow) / _TENTHS,
            extra_sigma,
            math.log(more),
            0.0 if kernel.valid else _UNSETTLED_SIGMA,
        ),
        per_byte="FLOP" not in kernel.unit.upper(),
        call_s=kernel.call_s,
        own=extra_sigma == 0.0,
        settled=kernel.valid,
    )


def _kernel(machine: Machine, target: str, kind: str, dtype: str, threads: int) -> KernelRate | None:
    """A settled rate, else one that was taken while others had the CPU: at the thread count where it is best."""
    settled = machine.kernel(target, kind, dtype, threads=threads)
    if settled is not None:
        return settled
    wanted = (target, kind, precision(dtype))
    found = [
        one
        for one in machine.kernels
        if (one.target, one.kind, precision(one.dtype)) == wanted and one.threads <= threads
    ]
    return max(found, key=lambda one: one.rate.value, default=None)


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
    by_kind = _measured_by_kind(diagnosis.ledger, measured)
    same_target = target == diagnosis.target
    out = {}
    for kind, part in parts.items():
        seen = by_kind[kind] / now[kind].seconds if by_kind.get(kind) and kind in now else overall
        error = math.log(seen) if seen > 0.0 else 0.0
        if same_target and kind in now and now[kind].rate == part.rate:
            out[kind] = dataclasses.replace(part, seconds=part.seconds * math.exp(error), sigma=_SAME_SIGMA)
            continue
        carried = error if same_target else max(-_MOST_CARRIED, min(_MOST_CARRIED, error / 2.0))
        sigma = math.hypot(part.sigma, carried / 2.0 if not same_target else 0.0)
        out[kind] = dataclasses.replace(part, seconds=part.seconds * math.exp(carried), sigma=sigma)
    return out


def _measured_by_kind(ledger: Ledger, measured_s: float) -> dict[str, float]:
    """Measured seconds by kind, page faults taken out in proportion; empty when operators were not timed."""
    sums: dict[str, float] = defaultdict(float)
    for op in ledger.ops:
        sums[op.kind] += op.time_s or 0.0
    total = sum(sums.values())
    return {kind: seconds * measured_s / total for kind, seconds in sums.items()} if total > 0.0 else {}


def _dtype_now(ledger: Ledger) -> str:
    top = max(ledger.ops, key=lambda op: op.flops or 0.0, default=None)
    return (precision(top.dtype) if top else None) or "fp32"


def _base(op: Op) -> str:
    return op.name.rsplit("::", 1)[-1].split(".")[0].lower().strip("_")


def _is_batch_norm(op: Op) -> bool:
    return op.kind == "norm" and any(word in _base(op) for word in _BATCH_NORMS)


def _drop(ops: list[Op], matches: Callable[[Op], bool], budget: int) -> list[Op]:
    """Take up to ``budget`` calls away from the operators that match, in order."""
    kept = []
    for op in ops:
        gone = min(op.calls, budget) if matches(op) else 0
        budget -= gone
        if gone == 0:
            kept.append(op)
        elif gone < op.calls:
            kept.append(_fewer(op, op.calls - gone))
    return kept


def _fewer(op: Op, calls: int) -> Op:
    part = calls / op.calls
    return dataclasses.replace(
        op,
        calls=calls,
        flops=None if op.flops is None else op.flops * part,
        bytes_low=op.bytes_low * part,
        bytes_high=op.bytes_high * part,
        weights_bytes=op.weights_bytes * part,
        time_s=None if op.time_s is None else op.time_s * part,
    )
