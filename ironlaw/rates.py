"""Seconds of one operator on a target, from calibrated kernel rates, else kinds beside it, else ceilings.

Why the choice is here and not in the predictor: it is the same for every lever, and every step down the ladder
(own kernel, unsettled kernel, another kind, a ceiling) must widen the interval in one place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ironlaw.fusion import PRODUCERS
from ironlaw.records import Interval, KernelRate, Ledger, Machine, Op, precision

EAGER = "torch"
"""The target that runs operators one by one; every other target is taken to fuse."""

ARITHMETIC = frozenset({"conv", "depthwise", "matmul", "attention", "recurrent"})
LEAST_SIGMA = 0.10
_PROXY_SIGMA, _UNSETTLED_SIGMA = 0.42, 0.5
_ITEM_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0, "float64": 8.0}
_UNKNOWN_ETA = Interval(low=0.12, value=0.4, high=1.0)
"""Efficiency against a ceiling when no kernel was calibrated: the range seen over kinds on CPUs."""
Z90 = 1.645
_TENTHS = 2.563
"""Standard deviations between the 10 % and the 90 % quantile."""
_EXPLAINED = 0.6
"""Part of the deviation of products over shapes that is left once their reuse is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
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


def op_seconds(op: Op, rate: Rate, dtype: str, stream: float | None) -> float:
    """Work over rate, not faster than its weights can stream, plus the fixed cost of its calls."""
    if op.kind == "view":
        return op.calls * rate.call_s
    shrink = _shrink(op, dtype) if op.kind in PRODUCERS else 1.0
    busy = op.bytes_high * shrink / rate.rate if rate.per_byte else (op.flops or 0.0) / _at_reuse(op, rate)
    if stream and op.weights_bytes:
        busy = max(busy, op.weights_bytes * shrink / stream)
    return busy + op.calls * rate.call_s


def _at_reuse(op: Op, rate: Rate) -> float:
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


def stream_rate(ledger: Ledger, machine: Machine, dtype: str, threads: int) -> float | None:
    """Bytes a second at which weights arrive: from the last-level cache when all of them stay there."""
    weights = sum(op.weights_bytes * _shrink(op, dtype) for op in ledger.ops)
    size = max((cache.size_bytes for cache in machine.caches), default=0)
    found = machine.ceiling("cache" if weights < 0.5 * size else "dram", threads=threads)
    return found.value if found else None


def rate_of(machine: Machine, target: str, kind: str, dtype: str, threads: int) -> Rate | None:
    """The calibrated rate, else a kind or dtype beside it (wider), else a ceiling (widest)."""
    proxy = "matmul" if kind in ARITHMETIC else "elementwise"
    if kind == "view":
        kernel = _kernel(machine, target, kind, "fp32", threads)
        cost = kernel.call_s if kernel else _dispatch(machine, target)
        return Rate(rate=1.0, slow=1.0, fast=1.0, sigma=LEAST_SIGMA, per_byte=True, call_s=cost, own=True, settled=True)
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
    return Rate(
        rate=ceiling.value * _UNKNOWN_ETA.value,
        slow=ceiling.value * _UNKNOWN_ETA.low,
        fast=ceiling.value * _UNKNOWN_ETA.high,
        sigma=math.log(_UNKNOWN_ETA.high / _UNKNOWN_ETA.low) / (2.0 * Z90),
        per_byte=kind not in ARITHMETIC,
        call_s=_dispatch(machine, target),
        own=False,
        settled=False,
    )


def _dispatch(machine: Machine, target: str) -> float:
    found = machine.ceiling("dispatch")
    return found.value if found and target == EAGER else 0.0


def _from_kernel(kernel: KernelRate, extra_sigma: float, threads: int) -> Rate:
    """Wider when it stands in for another kind, or was calibrated with fewer threads than asked."""
    more = math.sqrt(max(1.0, threads / max(1, kernel.threads)))
    value = kernel.rate.value
    slow, fast = max(min(kernel.rate.low, value), 1e-3 * value), max(kernel.rate.high, value)
    explained = _EXPLAINED if kernel.kind == "matmul" and extra_sigma == 0.0 else 1.0
    return Rate(
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
