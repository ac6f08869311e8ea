"""Seconds of one operator of a given shape, from the shapes on which its kind was calibrated.

Why not one rate a kind: a small convolution reaches a fifth of what a large one does, a product of three rows reads its
weights three times, and an eager GELU costs several times a ReLU before its first element. Arithmetic is taken from the
nearest calibrated shapes by size and by how often each weight is used; what moves bytes is interpolated by size along
its own operator where that was timed. How wrong this is, is found by leaving each calibrated shape out in turn. It
refuses to extrapolate a trend: beyond the calibrated sizes the last rate holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ironlaw.records import KernelPoint

COLD = "cold"
"""The operator name of products that were timed with weights which no cache held."""
_NEAREST = 3
_SOFT = 0.25
"""Distance (natural log) below which neighbours weigh alike."""
_FAR = 2.0
_FAR_SIGMA = 0.15
"""Log deviation that each unit of distance beyond ``_FAR`` adds."""
ALONG = 0.15
"""Log deviation of a size between two calibrated sizes of the same operator."""
_MIDDLE = 0.6745
_ALIKE = 0.10


def named(points: Sequence[KernelPoint], op: str) -> tuple[KernelPoint, ...]:
    """The points of that operator where it was timed by itself on enough shapes, else all."""
    own = tuple(point for point in points if point.op == op)
    return own if len(own) >= _NEAREST else tuple(points)


def seconds(point: KernelPoint, chill: float) -> float:
    """Between a call that finds all in the inner caches (``chill`` 0) and one among many others (1)."""
    if point.repeated_s is None:
        return point.seconds
    return float(point.repeated_s ** (1.0 - chill) * point.seconds**chill)


def arithmetic(points: Sequence[KernelPoint], work: float, weights: float, call_s: float, chill: float = 1.0) -> float:
    """Seconds of a call of ``work`` FLOPs over ``weights`` stored elements, its fixed cost included.

    The geometric mean of what the nearest shapes' rates give, weighed by nearness (Shepard 1968).
    """
    near = _near(points, work, weights)
    total = sum(weight for _, weight in near)
    logs = sum(weight * math.log(_scaled(point, work, call_s, chill)) for point, weight in near)
    return math.exp(logs / total)


def streaming(points: Sequence[KernelPoint], op: str, work: float, chill: float = 1.0) -> float | None:
    """Seconds of a call that moves ``work`` bytes, between the calibrated sizes of this operator; None: not timed."""
    own = sorted((point for point in points if point.op == op), key=lambda point: point.work)
    if not own:
        return None
    below = [point for point in own if point.work <= work]
    above = [point for point in own if point.work > work]
    if not below:
        return seconds(own[0], chill)
    if not above:
        return seconds(own[-1], chill) * work / own[-1].work
    low, high = below[-1], above[0]
    place = (work - low.work) / (high.work - low.work)
    return seconds(low, chill) + place * (seconds(high, chill) - seconds(low, chill))


def deviation(points: Sequence[KernelPoint], call_s: float) -> float:
    """The log deviation that leaving each shape out finds, at least a tenth; needs four shapes."""
    errors = []
    for point in points:
        rest = [other for other in points if other is not point]
        found = arithmetic(rest, point.work, point.weights, call_s)
        errors.append(abs(math.log(found / point.seconds)))
    errors.sort()
    middle = errors[len(errors) // 2] / _MIDDLE
    spread = math.sqrt(sum(error * error for error in errors) / len(errors))
    return max(_ALIKE, math.sqrt(middle * spread))


def strangeness(points: Sequence[KernelPoint], work: float, weights: float) -> float:
    """The log deviation to add for a shape that is far from every calibrated one."""
    nearest = min(_distance(point, work, weights) for point in points)
    return _FAR_SIGMA * max(0.0, nearest - _FAR)


def _near(points: Sequence[KernelPoint], work: float, weights: float) -> list[tuple[KernelPoint, float]]:
    ranked = sorted(((_distance(point, work, weights), point) for point in points), key=lambda pair: pair[0])
    return [(point, 1.0 / (distance**2 + _SOFT**2)) for distance, point in ranked[:_NEAREST]]


def _distance(point: KernelPoint, work: float, weights: float) -> float:
    size = math.log(max(work, 1.0) / max(point.work, 1.0))
    return math.hypot(size, _reuse(work, weights) - _reuse(point.work, point.weights))


def _reuse(work: float, weights: float) -> float:
    """Log of the FLOPs for each stored weight; of operators without weights it is their size that counts."""
    return math.log(max(1.0, work / weights)) if weights > 0.0 else 0.0


def _scaled(point: KernelPoint, work: float, call_s: float, chill: float) -> float:
    """What the point's own rate gives for ``work``: the fixed cost does not grow with it."""
    taken = seconds(point, chill)
    fixed = min(call_s, 0.9 * taken)
    return fixed + (taken - fixed) * work / point.work
