"""Seconds of one operator on a target, from calibrated kernel rates, else kinds beside it, else ceilings.

Why the choice is here and not in the predictor: it is the same for every lever, and every step down the ladder
(nearest shapes of the kind, its rate, an unsettled kernel, another kind, a ceiling) must widen the interval in one
place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ironlaw import shapes
from ironlaw.fusion import PRODUCERS, base_name
from ironlaw.records import Interval, KernelPoint, KernelRate, Ledger, Machine, Op, precision

EAGER = "torch"
"""The target that runs operators one by one; every other but the ones of ``ONE_BY_ONE`` is taken to fuse."""
CHANNELS_LAST, PACKED = "torch.channels_last", "torch.packed"
"""Eager kernels on channels-last images, and the kernels that a compiler calls with weights packed once: calibrated
beside :data:`EAGER`, whose rates stand in for the kinds that they do not change."""
ONE_BY_ONE = frozenset({EAGER, CHANNELS_LAST})

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
_FEWEST_POINTS = 5
_INNERMOST_BYTES, _INNER_BYTES = 32 * 1024, 1 << 20
"""Of caches that no probe told apart: first and second level of most CPUs."""
_WARM_SHARE = 0.25
"""Of the last-level cache, what a model's weights may fill and be found there at the next call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """Work per second of a kind (with its tenth and ninetieth percentile), the log deviation of that over
    shapes, and the fixed cost of a call. ``warm`` and ``cold`` are calibrated shapes, where there are enough."""

    rate: float
    slow: float
    fast: float
    sigma: float
    per_byte: bool
    call_s: float
    own: bool
    settled: bool
    warm: tuple[KernelPoint, ...] = ()
    cold: tuple[KernelPoint, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What an operator runs among: the dtype of products, B/s at which weights arrive, the share of the model's
    weights that no cache keeps from one call to the next (``cold``), and how far the model outgrows the innermost
    caches, from none (0) to all of them (1) on a log scale (``chill``); ``inner_bytes`` are the sizes of those."""

    dtype: str
    stream: float | None
    cold: float
    chill: float
    inner_bytes: tuple[float, float]


def surroundings(ledger: Ledger, machine: Machine, dtype: str, threads: int) -> Surroundings:
    """Of any operator of the ledger in this dtype."""
    size = max((cache.size_bytes for cache in machine.caches), default=0)
    weights = sum(op.weights_bytes * _shrink(op, dtype) for op in ledger.ops)
    cold = (weights / size - _WARM_SHARE) / (1.0 - _WARM_SHARE) if size else 0.0
    inner = _inner_caches(machine)
    found = machine.ceiling("cache" if weights < 0.5 * size else "dram", threads=threads)
    return Surroundings(
        dtype=dtype,
        stream=found.value if found else None,
        cold=min(1.0, max(0.0, cold)),
        chill=_place(weights + max((_activations(op) for op in ledger.ops), default=0.0), inner),
        inner_bytes=inner,
    )


def _activations(op: Op) -> float:
    return (op.bytes_high - op.weights_bytes) / op.calls if op.calls else 0.0


def _inner_caches(machine: Machine) -> tuple[float, float]:
    """Bytes of the innermost cache and of the one before the last."""
    sizes = [size for _, size in sorted({cache.level: cache.size_bytes for cache in machine.caches}.items())]
    return (sizes[0], sizes[-2]) if len(sizes) > 2 else (_INNERMOST_BYTES, _INNER_BYTES)


def _place(used_bytes: float, inner: tuple[float, float]) -> float:
    """Where ``used_bytes`` lie between the two, on a log scale from 0 to 1."""
    low, high = inner
    return min(1.0, max(0.0, math.log(max(used_bytes, 1.0) / low) / math.log(high / low)))


def op_seconds(op: Op, rate: Rate, around: Surroundings) -> float:
    """From the nearest calibrated shapes; else work over rate, not faster than its weights can stream, plus calls."""
    if op.kind == "view":
        return op.calls * rate.call_s
    shrink = _shrink(op, around.dtype) if op.kind in PRODUCERS else 1.0
    busy = _by_shape(op, rate, around)
    if busy is None:
        busy = op.bytes_high * shrink / rate.rate if rate.per_byte else (op.flops or 0.0) / _at_reuse(op, rate)
        busy += op.calls * rate.call_s
    if around.stream and op.weights_bytes and not rate.cold and op.kind != "recurrent":
        busy = max(busy, op.weights_bytes * shrink / around.stream + op.calls * rate.call_s)
    return busy


def strange(op: Op, rate: Rate) -> float:
    """The log deviation to add because no calibrated shape is near."""
    if not rate.warm:
        return 0.0
    if rate.per_byte:
        timed = op.kind == "view" or base_name(op) in {point.op for point in rate.warm}
        return 0.0 if timed else math.log(rate.fast / rate.slow) / _TENTHS
    if not op.flops:
        return 0.0
    steps = _steps(op) if op.kind == "recurrent" else 1
    return shapes.strangeness(rate.warm, op.flops / op.calls / steps, _elements(op))


def _by_shape(op: Op, rate: Rate, around: Surroundings) -> float | None:
    """Seconds of all its calls, between warm and cold weights; None where shapes say nothing of this operator."""
    if not rate.warm or not op.calls:
        return None
    if rate.per_byte:  # its operands were just made: only its own size says where they are
        moved = op.bytes_high / op.calls
        found = shapes.streaming(rate.warm, base_name(op), moved, _place(moved, around.inner_bytes))
        return None if found is None else op.calls * found
    if not op.flops:
        return None
    work, weights = op.flops / op.calls, _elements(op)
    if op.kind == "recurrent":
        steps = _steps(op)
        each = shapes.arithmetic(shapes.named(rate.warm, _cell(op)), work / steps, weights, 0.0, around.chill)
        return op.calls * (rate.call_s + steps * each)
    points = shapes.named(rate.warm, base_name(op))
    warm = shapes.arithmetic(points, work, weights, rate.call_s, around.chill)
    if not rate.cold or not weights or not around.cold:
        return op.calls * warm
    cold = max(warm, shapes.arithmetic(rate.cold, work, weights, rate.call_s))
    return float(op.calls * (warm + around.cold * (cold - warm)))


def _steps(op: Op) -> int:
    """Steps of a recurrent layer, whose input is given as steps x batch x width."""
    first = op.shape.split("x")[0]
    return max(1, int(first)) if first.isdigit() else 1


def _cell(op: Op) -> str:
    return "gru" if "gru" in op.name.lower() else "lstm"


def _elements(op: Op) -> float:
    """Stored weights that one call uses."""
    return op.weights_bytes / op.calls / _ITEM_BYTES.get(precision(op.dtype) or "", 4.0)


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


def rate_of(machine: Machine, target: str, kind: str, dtype: str, threads: int) -> Rate | None:
    """The calibrated rate, else a kind or dtype beside it (wider), else a ceiling (widest)."""
    proxy = "matmul" if kind in ARITHMETIC else "elementwise"
    if kind == "view":
        kernel = _kernel(machine, target, kind, "fp32", threads)
        cost = kernel.call_s if kernel else _dispatch(machine, target)
        return Rate(rate=1.0, slow=1.0, fast=1.0, sigma=LEAST_SIGMA, per_byte=True, call_s=cost, own=True, settled=True)
    for runtime, name in _ladder(target, kind, proxy):
        for kernel_dtype in (dtype, "fp32"):
            kernel = _kernel(machine, runtime, name, kernel_dtype, threads)
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


def _ladder(target: str, kind: str, proxy: str) -> list[tuple[str, str]]:
    """Runtimes and kinds to ask, the nearest first."""
    beside = [EAGER] if target in (CHANNELS_LAST, PACKED) else []
    return [(runtime, name) for name in (kind, proxy) for runtime in (target, *beside)]


def _dispatch(machine: Machine, target: str) -> float:
    found = machine.ceiling("dispatch")
    return found.value if found and target == EAGER else 0.0


def _from_kernel(kernel: KernelRate, extra_sigma: float, threads: int) -> Rate:
    """Wider when it stands in for another kind, or was calibrated with fewer threads than asked."""
    more = math.sqrt(max(1.0, threads / max(1, kernel.threads)))
    value = kernel.rate.value
    slow, fast = max(min(kernel.rate.low, value), 1e-3 * value), max(kernel.rate.high, value)
    warm = tuple(point for point in kernel.points if point.op != shapes.COLD)
    per_byte = "FLOP" not in kernel.unit.upper()
    by_shape = len(warm) >= _FEWEST_POINTS and extra_sigma == 0.0 and more == 1.0
    explained = _EXPLAINED if kernel.kind == "matmul" and extra_sigma == 0.0 else 1.0
    spread = explained * math.log(fast / slow) / _TENTHS
    if by_shape:
        fixed = 0.0 if kernel.kind == "recurrent" else kernel.call_s
        spread = shapes.ALONG if per_byte else shapes.deviation(warm, fixed)
    return Rate(
        rate=value * more,
        slow=slow * more,
        fast=fast * more,
        sigma=math.hypot(
            spread,
            extra_sigma,
            math.log(more),
            0.0 if kernel.valid else _UNSETTLED_SIGMA,
        ),
        per_byte=per_byte,
        call_s=kernel.call_s,
        own=extra_sigma == 0.0,
        settled=kernel.valid,
        warm=warm if by_shape else (),
        cold=tuple(point for point in kernel.points if point.op == shapes.COLD) if by_shape else (),
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
