"""The frontier against brute force, ties and infinities included."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.laws.pareto import dominates, front

values = st.one_of(st.integers(0, 4).map(float), st.sampled_from([math.inf, -math.inf]))


@given(data=st.data(), metrics=st.integers(1, 4))
def test_brute_force(data, metrics):
    up = data.draw(st.lists(st.booleans(), min_size=metrics, max_size=metrics))
    points = data.draw(st.lists(st.tuples(*[values] * metrics), max_size=14))

    def better(a, b):
        pairs = [(x, y) if high else (-x, -y) for x, y, high in zip(a, b, up, strict=True)]
        return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)

    expected = [i for i, p in enumerate(points) if not any(better(q, p) for q in points)]
    assert front(points, up) == expected
    for a in points:
        for b in points:
            assert dominates(a, b, up) == better(a, b)


def test_orientation_and_order():
    points = [(5.0, 0.9), (3.0, 0.8), (4.0, 0.8), (3.0, 0.8), (9.0, 0.95)]
    assert front(points, [False, True]) == [0, 1, 3, 4]
    assert front(points) == [1, 3]
    assert front(points, [True, True]) == [4]
    assert front([]) == []


@pytest.mark.parametrize(
    ("points", "up", "message"),
    [
        ([(1.0, math.nan)], [False, True], "holds NaN"),
        ([(1.0,), (1.0, 2.0)], None, r"must have 1 metric\(s\)"),
        ([()], None, "at least one"),
        ([(1.0, 2.0)], [True], r"must have 1 metric\(s\)"),
    ],
)
def test_refusals(points, up, message):
    with pytest.raises(ValueError, match=message):
        front(points, up)
