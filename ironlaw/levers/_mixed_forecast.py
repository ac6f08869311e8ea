"""What int8 gives when some layers stay in float and nobody knows yet which.

The spared share of the arithmetic is an interval: by count for the value, all of the smallest layers at one end and all
of the largest at the other. Time is then mixed, not speed: the spared share at the float rate, the rest at the int8
rate. It refuses to guess which kind of layer will be the harmful one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ironlaw.levers import _int8
from ironlaw.records import Candidate, Interval, Op, Prediction

_NARROW = 0.25
"""Bytes of an int8 weight over those of a float one."""


def layers(ops: Sequence[Op]) -> int:
    """How many layers those operators of a ledger are (equal ones are one operator, called more than once)."""
    return sum(max(1, round(op.calls)) for op in ops)


def share(ops: Sequence[Op], spare: int, amount: Callable[[Op], float]) -> Interval:
    """The share of an amount that ``spare`` layers hold: the smallest ones, an average one each, the largest ones."""
    each = sorted(amount(op) / max(1, round(op.calls)) for op in ops for _ in range(max(1, round(op.calls))))
    total = sum(each)
    if not total:
        return Interval(low=0.0, value=0.0, high=0.0)
    spare = min(spare, len(each))
    return Interval(
        low=sum(each[:spare]) / total,
        value=spare / len(each),
        high=sum(each[-spare:]) / total,
    )


def between(floats: Prediction, whole: Prediction, ops: Sequence[Op], spare: int) -> Prediction:
    """The gain with the spared share at float speed, the rest as if all were int8."""
    spared = share(ops, spare, lambda op: op.flops or 0.0)

    def gain(slow: float, quick: float, part: float) -> float:
        return 1.0 / (part / slow + (1.0 - part) / quick)

    ends = [gain(floats.speedup.low, whole.speedup.low, part) for part in (spared.low, spared.high)] + [
        gain(floats.speedup.high, whole.speedup.high, part) for part in (spared.low, spared.high)
    ]
    value = gain(floats.speedup.value, whole.speedup.value, spared.value)
    basis = (
        f"{whole.basis}; {spare} of {layers(ops)} layers in float, {spared.low:.0%} to {spared.high:.0%} of the work"
    )
    speedup = Interval(low=min(*ends, value), value=value, high=max(*ends, value))
    return dataclasses.replace(whole, speedup=speedup, basis=basis)


def for_goal(candidate: Candidate, mixed: Prediction, ops: Sequence[Op], spare: int) -> Prediction:
    """With the size of the file, which is the gain itself where the goal is size: spared weights stay as wide."""
    spared = share(ops, spare, lambda op: op.weights_bytes)
    low, value, high = (
        _int8.for_goal(candidate, mixed, ops, width=round(_NARROW + (1 - _NARROW) * part, 3))
        for part in (spared.low, spared.value, spared.high)
    )
    assert low.size_bytes is not None
    assert value.size_bytes is not None
    assert high.size_bytes is not None
    size = Interval(
        low=min(low.size_bytes.low, value.size_bytes.value),
        value=value.size_bytes.value,
        high=max(high.size_bytes.high, value.size_bytes.value),
    )
    speedup = Interval(
        low=min(high.speedup.low, value.speedup.value),
        value=value.speedup.value,
        high=max(low.speedup.high, value.speedup.value),
    )
    return dataclasses.replace(value, size_bytes=size, speedup=speedup)
