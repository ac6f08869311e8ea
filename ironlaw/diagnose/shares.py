"""Splits the seconds of every operator into dispatch, page faults and work, and finds the side of its work.

The side is read from a roofline with two roofs of bandwidth. Its work is *memory* when moving the bytes takes
longer than the arithmetic even from the cache, and *compute* when it takes less even if every operand
came from memory. In between, where the byte interval straddles the ridge, it is split and both
terms are widened by it (Williams et al. 2009; rule 5 of the measuring rules).

The pass that timed the operators may have met another load than the timed one: times are scaled by the ratio of
whole calls, which both passes know. The observer inflates small operators: where their times still do not
fit into the total, the same cost per event is taken off each before anything is scaled. Without times per
operator (compiled artefacts) the work is what calibrated kernels, else the roofs, say, and what is left
over is residual.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ironlaw.records import Interval, Ledger, Machine, Op, precision

EAGER = "torch"
ARITHMETIC = frozenset({"conv", "depthwise", "matmul", "attention", "recurrent"})
_FAULTING_BYTES = 128 * 1024
"""glibc's first mmap threshold: smaller buffers are reused and do not fault again."""
_DOUBT = 3.0
"""How far a refused ceiling may be off, either way."""
_KEPT = 0.5
"""Share of the last-level cache that a call may need and still find warm the next time."""
_TINY_CALL = 10.0
_FEWEST = 0.2
"""An operator keeps at least this share of its time when the observer's cost is taken off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofs:
    """Ceilings that hold for this run; None where the machine was not probed.

    ``doubtful`` names refused ones; ``resident`` says that all a call needs stays in the last-level cache, so that
    no byte has to come from memory in a warm run.
    """

    dram: Interval | None
    cache: Interval | None
    compute: dict[str, Interval]
    dispatch: Interval | None
    doubtful: tuple[str, ...] = ()
    resident: bool = False

    def fastest_s(self, op: Op) -> tuple[float, float]:
        """Seconds for the traffic that cannot be avoided, at the expected and at the best bandwidth."""
        assert self.dram is not None
        inside = (op.bytes_high / self.cache.value, op.bytes_high / self.cache.high) if self.cache else (0.0, 0.0)
        if self.resident and self.cache:
            return inside
        return max(op.bytes_low / self.dram.value, inside[0]), max(op.bytes_low / self.dram.high, inside[1])

    def arithmetic(self, dtype: str) -> Interval | None:
        return self.compute.get(precision(dtype) or "") or self.compute.get("fp32")


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """One operator's seconds, split. ``memory`` is the part of ``work_s`` on that side of the ridge.

    ``sure`` is False where the byte interval straddles the ridge; ``roof_s`` is what the roofs would allow.
    """

    op: Op
    fixed_s: float
    paging_s: float
    work_s: float
    memory: float | None
    sure: bool
    roof_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """All operators of a run.

    ``gap_s`` is measured time outside them; ``squeezed`` the share of the profiled time that did not fit; ``drift``
    how much slower the timed pass was than the profiled one.
    """

    shares: tuple[Share, ...]
    gap_s: float
    squeezed: float
    drift: float
    timed: bool

    def ledger(self, before: Ledger, total_s: float) -> Ledger:
        """The ledger with the times that were used, so that its table adds up to the measured total."""
        if not self.timed:
            return before
        used = iter(self.shares)
        ops = tuple(op if op.time_s is None else next(used).op for op in before.ops)
        return dataclasses.replace(before, ops=ops, profiled_s=total_s)

    @property
    def calls(self) -> int:
        return sum(share.op.calls for share in self.shares)


def limit(
    machine: Machine, name: str, *, dtype: str | None = None, threads: int = 1, cost: bool = False
) -> tuple[Interval | None, bool]:
    """A ceiling as an interval, and whether it is doubtful.

    One that its probe refused (others had the CPU) still says something: contention only makes a rate lower and
    a cost higher, so the best refused value up to this thread count is taken, three times as wide either way.
    """
    found = machine.ceiling(name, dtype=dtype, threads=threads)
    if found is not None:
        return found.interval, False
    refused = [
        one.value
        for one in machine.ceilings
        if one.name == name and precision(one.dtype) == precision(dtype) and one.threads <= threads and one.value > 0.0
    ]
    if not refused:
        return None, False
    best = min(refused) if cost else max(refused)
    return Interval(low=best / _DOUBT, value=best, high=best * _DOUBT), True


def roofs(machine: Machine, ledger: Ledger, threads: int) -> Roofs:
    """The ceilings at this thread count."""
    dtypes = sorted({"fp32"} | {precision(op.dtype) or "" for op in ledger.ops})
    found = {dtype: limit(machine, "matmul", dtype=dtype, threads=threads) for dtype in dtypes}
    dram, cache = limit(machine, "dram", threads=threads), limit(machine, "cache", threads=threads)
    dispatch = limit(machine, "dispatch", cost=True)
    named = {"dram": dram, "cache": cache, "dispatch": dispatch} | {f"matmul {d}": one for d, one in found.items()}
    return Roofs(
        dram=dram[0],
        cache=cache[0],
        compute={dtype: one[0] for dtype, one in found.items() if one[0] is not None},
        dispatch=dispatch[0],
        doubtful=tuple(name for name, (_, doubt) in named.items() if doubt),
        resident=ledger.bytes_low <= _KEPT * max((cache.size_bytes for cache in machine.caches), default=0),
    )


def split(ledger: Ledger, machine: Machine, *, total_s: float, paging_s: float, target: str, threads: int) -> Split:
    """Split every operator so that shares and gap add up to ``total_s``."""
    limits = roofs(machine, ledger, threads)
    drift = total_s / ledger.profiled_s if ledger.profiled_s else 1.0
    timed = [dataclasses.replace(op, time_s=op.time_s * drift) for op in ledger.ops if op.time_s is not None]
    if timed:
        ops, squeezed = _fitted(timed, total_s)
    else:
        ops, squeezed = _estimated(ledger, machine, limits, target, threads, total_s - paging_s), 0.0
    fixed = [min(op.time_s or 0.0, _fixed(op, machine, limits, target, threads)) for op in ops]
    paging = _spread([(op.time_s or 0.0) - own for op, own in zip(ops, fixed, strict=True)], ops, paging_s, bool(timed))
    shares = tuple(_share(op, own, faults, limits) for op, own, faults in zip(ops, fixed, paging, strict=True))
    inside = sum(op.time_s or 0.0 for op in ops) + (0.0 if timed else paging_s)
    gap_s = max(0.0, total_s - inside)
    return Split(shares=shares, gap_s=gap_s, squeezed=squeezed, drift=drift, timed=bool(timed))


def _fitted(ops: Sequence[Op], total_s: float) -> tuple[list[Op], float]:
    """Times that fit into the total: a cost per call is taken off first, then all are scaled."""
    seconds = [op.time_s or 0.0 for op in ops]
    before = sum(seconds)
    if before <= total_s or before <= 0.0:
        return list(ops), 0.0
    each = (before - total_s) / max(1, sum(op.calls for op in ops))
    seconds = [max(_FEWEST * s, s - each * op.calls) for s, op in zip(seconds, ops, strict=True)]
    scale = min(1.0, total_s / sum(seconds))
    fitted = [dataclasses.replace(op, time_s=s * scale) for s, op in zip(seconds, ops, strict=True)]
    return fitted, 1.0 - total_s / before


def _estimated(
    ledger: Ledger, machine: Machine, limits: Roofs, target: str, threads: int, available_s: float
) -> list[Op]:
    """Times for operators that nobody timed: calibrated rate, else the roof; never more than there is."""
    dispatch = limits.dispatch.value if limits.dispatch and target == EAGER else 0.0
    found = [op for op in ledger.ops if op.kind != "view" or dispatch]
    seconds = []
    for op in found:
        kernel = machine.kernel(target, op.kind, op.dtype, threads=threads)
        if kernel is None:
            seconds.append(_roof_s(op, limits)[1] + op.calls * dispatch)
            continue
        work = (op.flops or 0.0) if "FLOP" in kernel.unit.upper() else op.bytes_high
        seconds.append(work / kernel.rate.value + op.calls * kernel.call_s)
    scale = min(1.0, max(0.0, available_s) / sum(seconds)) if sum(seconds) else 1.0
    return [dataclasses.replace(op, time_s=s * scale) for op, s in zip(found, seconds, strict=True)]


def _fixed(op: Op, machine: Machine, limits: Roofs, target: str, threads: int) -> float:
    """The fixed cost of its calls: calibrated for this kind, else that of any eager operator.

    The calibrated cost is that of a tiny call, which may have taken a slow path: it counts up to ten dispatches.
    """
    if op.kind == "view":
        return math.inf
    kernel = machine.kernel(target, op.kind, op.dtype, threads=threads)
    call_s = kernel.call_s if kernel else 0.0
    if limits.dispatch is None or target != EAGER:
        return op.calls * call_s
    dispatch = limits.dispatch.value
    return op.calls * min(max(call_s, dispatch), _TINY_CALL * dispatch)


def _spread(room: list[float], ops: Sequence[Op], paging_s: float, timed: bool) -> list[float]:
    """Page faults lie in the operators with large operands, in proportion to bytes and within their time."""
    if not timed:
        return [0.0] * len(ops)
    weights = [op.bytes_high if op.bytes_high / op.calls >= _FAULTING_BYTES else 0.0 for op in ops]
    if not any(weights):
        weights = [op.bytes_high for op in ops]
    given = [0.0] * len(ops)
    left = paging_s
    for _ in range(8):
        open_ = [i for i, w in enumerate(weights) if w > 0.0 and given[i] < room[i] - 1e-15]
        total = sum(weights[i] for i in open_)
        if left <= 1e-12 or total <= 0.0:
            break
        for i in open_:
            given[i] += min(left * weights[i] / total, room[i] - given[i])
        left = paging_s - sum(given)
    return given


def _share(op: Op, fixed_s: float, paging_s: float, limits: Roofs) -> Share:
    time_s = op.time_s or 0.0
    memory, sure = side(op, limits)
    return Share(
        op=op,
        fixed_s=fixed_s,
        paging_s=paging_s,
        work_s=max(0.0, time_s - fixed_s - paging_s),
        memory=memory,
        sure=sure,
        roof_s=min(_roof_s(op, limits)[0], max(0.0, time_s - fixed_s - paging_s)),
    )


def side(op: Op, limits: Roofs) -> tuple[float | None, bool]:
    """How much of the operator's work is memory's (0 to 1), and whether that is sure; None when not counted.

    Sure is what holds over the whole interval of bytes and over that of the ceilings.
    """
    if op.kind in ("copy", "embedding") and op.bytes_high > 0.0:
        return 1.0, True
    peak, dram = limits.arithmetic(op.dtype), limits.dram
    if op.flops is None or dram is None or peak is None or (op.flops <= 0.0 and op.bytes_high <= 0.0):
        return None, False
    arithmetic_s = op.flops / peak.value
    fastest, least = limits.fastest_s(op)
    slowest = op.bytes_high / dram.value
    if fastest >= arithmetic_s:
        return 1.0, least >= op.flops / peak.low
    if slowest <= arithmetic_s:
        return 0.0, op.bytes_high / dram.low <= op.flops / peak.high
    if fastest <= 0.0:
        return 0.5, False
    return math.log(slowest / arithmetic_s) / math.log(slowest / fastest), False


def _roof_s(op: Op, limits: Roofs) -> tuple[float, float]:
    """The least time that the roofs allow, with the least and with the most traffic from memory."""
    peak = limits.arithmetic(op.dtype)
    arithmetic_s = (op.flops or 0.0) / peak.value if peak else 0.0
    if limits.dram is None:
        return arithmetic_s, arithmetic_s
    high = op.bytes_high / limits.dram.value
    return max(arithmetic_s, min(limits.fastest_s(op)[0], high)), max(arithmetic_s, high)
