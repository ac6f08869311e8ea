"""Seconds of work that a ledger asks for, without any fixed cost: what must be taken off a call to see its floor."""

from __future__ import annotations

from ironlaw.diagnose.shares import Roofs, roofs
from ironlaw.records import Interval, Ledger, Machine, Op

NOTHING = Interval(low=0.0, value=0.0, high=0.0)


def work_s(ledger: Ledger, machine: Machine, target: str, threads: int) -> Interval:
    """All operators, by the calibrated rates of their kinds; where there are none, from nothing up to the roofs."""
    limits = roofs(machine, ledger, threads)
    found = [_op_s(op, machine, limits, target, threads) for op in ledger.ops if op.kind != "view"]
    return Interval(low=sum(o.low for o in found), value=sum(o.value for o in found), high=sum(o.high for o in found))


def weights_s(ledger: Ledger, machine: Machine, threads: int) -> Interval:
    """One pass over the weights, from the cache where all of a call stays in it, else from memory."""
    return _over(sum(op.weights_bytes for op in ledger.ops), _traffic(roofs(machine, ledger, threads)))


def _op_s(op: Op, machine: Machine, limits: Roofs, target: str, threads: int) -> Interval:
    weights = _over(op.weights_bytes, _traffic(limits))
    kernel = machine.kernel(target, op.kind, op.dtype, threads=threads)
    if kernel is None:
        high = _over(op.flops or 0.0, limits.arithmetic(op.dtype)).high + _over(op.bytes_high, limits.dram).high
        return Interval(low=weights.low, value=weights.value, high=max(weights.high, high))
    own = _over((op.flops or 0.0) if "FLOP" in kernel.unit.upper() else op.bytes_high, kernel.rate)
    return Interval(
        low=max(own.low, weights.low), value=max(own.value, weights.value), high=max(own.high, weights.high)
    )


def _traffic(limits: Roofs) -> Interval | None:
    return limits.cache if limits.resident and limits.cache else limits.dram


def _over(amount: float, rate: Interval | None) -> Interval:
    """Seconds for an amount at a rate; none where the rate is not known."""
    if rate is None or amount <= 0.0:
        return NOTHING
    return Interval(low=amount / rate.high, value=amount / rate.value, high=amount / rate.low)
