"""The Pareto frontier: the points that no other point beats.

Why ties stay: two points with equal metrics are both worth showing, and dropping one would depend on
order. It refuses NaN: a missing metric is a failure, never a win, so a caller leaves such a point out
and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def dominates(a: Sequence[float], b: Sequence[float], maximise: Sequence[bool]) -> bool:
    """True when ``a`` is at least as good as ``b`` in every metric and better in one.

    ``maximise[i]`` says whether metric ``i`` is better when higher. Source: Pareto dominance as in
    Deb, Multi-Objective Optimization using Evolutionary Algorithms, 2001, definition 2.5.
    """
    signed_a, signed_b = _cost(a, maximise), _cost(b, maximise)
    return signed_a != signed_b and all(x <= y for x, y in zip(signed_a, signed_b, strict=True))


def front(points: Sequence[Sequence[float]], maximise: Sequence[bool] | None = None) -> list[int]:
    """Indices of the points that no other dominates, in the order given; equal points all stay.

    ``points[i][j]`` is metric ``j`` of point ``i``; ``maximise[j]`` says whether it is better when
    higher (by default every metric is better when lower). Raises ``ValueError`` for NaN, no metric, or rows of
    another length. Kung, Luccio, Preparata, JACM 22(4), 1975: in lexicographic order a point can only
    be dominated by one before it, so one pass against the frontier so far is enough.
    """
    if not points:
        return []
    up = [False] * len(points[0]) if maximise is None else maximise
    costs = [_cost(point, up) for point in points]
    kept: list[tuple[float, ...]] = []
    for cost in sorted(set(costs)):
        if not any(all(x <= y for x, y in zip(better, cost, strict=True)) for better in kept):
            kept.append(cost)
    best = set(kept)
    return [index for index, cost in enumerate(costs) if cost in best]


def _cost(point: Sequence[float], maximise: Sequence[bool]) -> tuple[float, ...]:
    if not maximise or len(point) != len(maximise):
        raise ValueError(f"a point must have {len(maximise)} metric(s), at least one, got {list(point)}")
    if any(math.isnan(value) for value in point):
        raise ValueError(f"a point holds NaN: leave it out and say why, got {list(point)}")
    return tuple(-value if up else value for value, up in zip(point, maximise, strict=True))
