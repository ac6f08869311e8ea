"""Interpolation between calibrated shapes against hand computation, and what it must never do."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw import shapes
from ironlaw.fusion import fused, rolled
from ironlaw.records import KernelPoint, Ledger, Op


def point(work, seconds, *, weights=1.0, op="addmm", repeated_s=None):
    return KernelPoint(op=op, work=work, weights=weights, seconds=seconds, repeated_s=repeated_s)


def op(name, kind, *, calls=1, flops=0.0, high=0.0, weights=0.0, time_s=None):
    return Op(
        name=name,
        kind=kind,
        calls=calls,
        flops=flops,
        bytes_low=0.0,
        bytes_high=high,
        dtype="float32",
        shape="",
        weights_bytes=weights,
        time_s=time_s,
    )


LINE = tuple(point(10.0**n, 2e-6 + 10.0**n / 1e10, weights=10.0**n / 2) for n in range(3, 10))


def test_a_calibrated_shape_is_found_again_when_all_points_agree():
    assert shapes.arithmetic(LINE, 1e6, 5e5, 2e-6) == pytest.approx(2e-6 + 1e-4, rel=1e-6)


def test_between_points_of_one_rate_the_answer_is_that_rate_and_the_fixed_cost():
    assert shapes.arithmetic(LINE, 3e7, 1.5e7, 2e-6) == pytest.approx(2e-6 + 3e-3, rel=1e-6)


def test_shapes_that_use_their_weights_alike_weigh_more_than_shapes_of_the_same_size():
    rows = [point(1e6, 1e-3, weights=5e5), point(1.1e6, 1.1e-3, weights=5.5e5)]
    squares = [point(1e6, 1e-5, weights=1e3), point(1.1e6, 1.1e-5, weights=1.1e3)]
    slow = shapes.arithmetic([*rows, *squares], 1e6, 5e5, 0.0)
    fast = shapes.arithmetic([*rows, *squares], 1e6, 1e3, 0.0)
    assert slow > 9e-4
    assert fast < 1.2e-5


@given(chill=st.floats(0.0, 1.0))
def test_a_call_among_others_lies_between_the_repeated_one_and_the_one_in_turn(chill):
    found = shapes.seconds(point(1.0, 4e-6, repeated_s=1e-6), chill)
    assert 1e-6 * (1 - 1e-9) <= found <= 4e-6 * (1 + 1e-9)


def test_half_way_between_the_caches_is_the_geometric_mean():
    assert shapes.seconds(point(1.0, 4e-6, repeated_s=1e-6), 0.5) == pytest.approx(2e-6)


def test_bytes_are_interpolated_along_their_own_operator():
    curve = [point(100.0, 1e-6, op="relu"), point(300.0, 3e-6, op="relu"), point(200.0, 9e-6, op="gelu")]
    assert shapes.streaming(curve, "relu", 200.0) == pytest.approx(2e-6)
    assert shapes.streaming(curve, "relu", 10.0) == pytest.approx(1e-6)
    assert shapes.streaming(curve, "relu", 900.0) == pytest.approx(9e-6)
    assert shapes.streaming(curve, "exp", 200.0) is None


def test_the_deviation_is_what_leaving_a_shape_out_finds():
    assert shapes.deviation(LINE, 2e-6) == pytest.approx(0.10)  # the least, since all agree
    factors = [1.0, 2.0, 0.5, 2.0, 0.5, 1.0, 2.0]
    scattered = [point(p.work, p.seconds * f, weights=p.weights) for p, f in zip(LINE, factors, strict=True)]
    assert shapes.deviation(scattered, 2e-6) > 0.4


def test_a_shape_far_from_every_other_is_strange_and_a_calibrated_one_is_not():
    assert shapes.strangeness(LINE, 1e6, 5e5) == 0.0
    assert shapes.strangeness(LINE, 1e13, 5e12) == pytest.approx(0.15 * (math.log(1e4) - 2.0))


# ---------------------------------------------------------------- recurrent cells written out


def written_out(steps, splits, products=2):
    return (
        op("addmm", "matmul", flops=8e5),
        *(op("addmm", "matmul", calls=steps, flops=1e6, high=2e6, weights=1e6, time_s=1e-3) for _ in range(products)),
        op("unsafe_split", "view", calls=splits),
        op("sigmoid_", "elementwise", calls=2 * steps, time_s=1e-4),
        op("relu", "elementwise", calls=1),
    )


@pytest.mark.parametrize(("splits", "cell"), [(40, "gru"), (20, "lstm")])
def test_written_out_cells_are_one_recurrent_operator_again(splits, cell):
    found = rolled(written_out(20, splits))
    (one,) = [o for o in found if o.kind == "recurrent"]
    assert (one.name, one.calls, one.flops, one.shape) == (cell, 1, 2e6, "20x1x1")
    assert one.weights_bytes == pytest.approx(2e6 / 20)
    assert one.time_s == pytest.approx(2.1e-3)
    assert [o.name for o in found if o.kind == "elementwise"] == ["relu"]
    assert sum(o.flops for o in found) == 2.8e6


def test_what_is_no_cell_stays_as_it_is():
    plain = (op("addmm", "matmul", calls=20, flops=1e6), op("unsafe_split", "view", calls=3))
    assert rolled(plain) == plain
    assert rolled(plain[:1]) == plain[:1]


def test_a_graph_runtime_is_left_with_the_rolled_cell():
    left = fused(Ledger(ops=written_out(20, 40), batch=1, source="test"))
    assert sorted(o.kind for o in left) == ["matmul", "recurrent"]
