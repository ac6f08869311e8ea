"""Which rate an operator gets: its nearest shapes, warm or cold, else the rate of its kind, else one beside it."""

import dataclasses
import math

import pytest

from ironlaw import rates
from ironlaw.records import (
    Cache,
    Conditions,
    Environment,
    Identity,
    Interval,
    KernelPoint,
    KernelRate,
    Ledger,
    Machine,
    Op,
)

MIB = float(1 << 20)


def machine(*kernels, sizes=(32 * 1024, 1 << 20, 32 << 20)):
    identity = Identity(cpu="c", architecture="a", isa=(), cores=2, memory_bytes=1, os="o", python="p")
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None)
    caches = tuple(
        Cache(level=level, size_bytes=size, bandwidth_bytes_per_s=1e11, source="t")
        for level, size in enumerate(sizes, 1)
    )
    environment = Environment(identity=identity, conditions=conditions)
    return Machine(environment=environment, ceilings=(), kernels=kernels, caches=caches)


def kernel(kind, points=(), *, target="torch", unit="FLOP/s", value=1e9, call_s=0.0):
    return KernelRate(
        target=target,
        kind=kind,
        dtype="float32",
        threads=1,
        unit=unit,
        rate=Interval(low=value / 2, value=value, high=value * 2),
        call_s=call_s,
        shapes=len(points),
        points=tuple(points),
    )


def products(op, rate):
    """Points of one rate over sizes, each weight used once."""
    return [
        KernelPoint(op=op, work=2.0 * n, weights=float(n), seconds=2.0 * n / rate) for n in (1e3, 1e4, 1e5, 1e6, 1e7)
    ]


def product(weights_bytes, *, name="addmm", kind="matmul", high=0.0, flops=None, shape=""):
    work = weights_bytes / 2.0 if flops is None else flops
    return Op(
        name=name,
        kind=kind,
        calls=1,
        flops=work,
        bytes_low=0.0,
        bytes_high=max(high, weights_bytes),
        dtype="float32",
        shape=shape,
        weights_bytes=weights_bytes,
    )


def around(host, *ops):
    return rates.surroundings(Ledger(ops=ops, batch=1, source="t"), host, "fp32", 1)


@pytest.mark.parametrize(("mib", "cold"), [(4.0, 0.0), (8.0, 0.0), (20.0, 0.5), (32.0, 1.0), (90.0, 1.0)])
def test_weights_are_cold_from_a_quarter_of_the_last_cache_to_all_of_it(mib, cold):
    assert around(machine(), product(mib * MIB)).cold == pytest.approx(cold)


@pytest.mark.parametrize(
    ("kib", "chill"), [(8.0, 0.0), (32.0, 0.0), (math.sqrt(32 * 1024), 0.5), (1024.0, 1.0), (9e4, 1.0)]
)
def test_a_model_chills_from_the_first_cache_to_the_second_on_a_log_scale(kib, chill):
    assert around(machine(), product(kib * 1024)).chill == pytest.approx(chill)


def test_a_cold_product_takes_its_cold_shapes_and_half_cold_ones_lie_half_way():
    host = machine(kernel("matmul", [*products("addmm", 8e9), *products("cold", 2e9)]))
    rate = rates.rate_of(host, "torch", "matmul", "fp32", 1)
    for mib, expected in ((4.0, 8e9), (40.0, 2e9)):
        op = product(mib * MIB)
        assert rates.op_seconds(op, rate, around(host, op)) == pytest.approx(op.flops / expected)
    half = product(20.0 * MIB)
    between = (half.flops / 8e9 + half.flops / 2e9) / 2
    assert rates.op_seconds(half, rate, around(host, half)) == pytest.approx(between)


def test_few_shapes_are_not_asked():
    host = machine(kernel("matmul", products("addmm", 8e9)[:3]))
    rate = rates.rate_of(host, "torch", "matmul", "fp32", 1)
    assert rate.warm == ()
    op = product(4e5, flops=1e6)
    assert 1e6 / rate.rate < rates.op_seconds(op, rate, around(host, op)) < 1e6 / rate.slow  # ten FLOPs a weight


def test_an_operator_that_was_not_timed_takes_the_rate_of_its_kind_and_is_strange():
    points = [KernelPoint(op="relu", work=10.0**n, weights=0.0, seconds=10.0**n / 5e9) for n in range(3, 8)]
    host = machine(kernel("elementwise", points, unit="B/s", value=1e9, call_s=1e-6))
    rate = rates.rate_of(host, "torch", "elementwise", "fp32", 1)
    relu = product(0.0, name="aten::relu_", kind="elementwise", high=1e6, flops=0.0)
    odd = dataclasses.replace(relu, name="aten::erfinv")
    assert rates.op_seconds(relu, rate, around(host, relu)) == pytest.approx(1e6 / 5e9)
    assert rates.op_seconds(odd, rate, around(host, odd)) == pytest.approx(1e6 / 1e9 + 1e-6)
    assert rates.strange(relu, rate) == 0.0
    assert rates.strange(odd, rate) > 0.5


def test_a_recurrent_layer_pays_for_each_of_its_steps_and_for_its_call_once():
    points = [
        KernelPoint(op="gru", work=2.0 * n, weights=float(n), seconds=2.0 * n / 1e9) for n in (1e3, 1e4, 1e5, 1e6, 1e7)
    ]
    host = machine(kernel("recurrent", points, call_s=1e-4))
    rate = rates.rate_of(host, "torch", "recurrent", "fp32", 1)
    cell = product(4e5, name="gru", kind="recurrent", flops=50 * 2e5, shape="50x1x1")
    assert rates.op_seconds(cell, rate, around(host, cell)) == pytest.approx(1e-4 + 50 * 2e5 / 1e9)


def test_eager_rates_stand_in_for_what_packing_does_not_change_and_not_the_other_way_round():
    host = machine(
        kernel("matmul", value=3e9),
        kernel("recurrent", value=1e9),
        kernel("elementwise", unit="B/s", value=5e9),
        kernel("matmul", target=rates.PACKED, value=9e9),
    )
    packed = {
        kind: rates.rate_of(host, rates.PACKED, kind, "fp32", 1).rate for kind in ("matmul", "recurrent", "elementwise")
    }
    assert packed == {"matmul": 9e9, "recurrent": 1e9, "elementwise": 5e9}
    assert rates.rate_of(host, "torch", "matmul", "fp32", 1).rate == 3e9
    assert rates.rate_of(host, "openvino", "matmul", "fp32", 1) is None
