"""Predictions against hand computation: rates, fusion, Amdahl, what happens when calibration is missing."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw import predict
from ironlaw.records import (
    Cache,
    Ceiling,
    Conditions,
    Diagnosis,
    Environment,
    Identity,
    Interval,
    KernelRate,
    Ledger,
    Machine,
    Op,
    Term,
    TermTime,
    exactly,
)


def kernel(target, kind, value, *, dtype="float32", call_s=0.0, spread=1.0, threads=1, unit=None):
    return KernelRate(
        target=target,
        kind=kind,
        dtype=dtype,
        threads=threads,
        unit=unit or ("FLOP/s" if kind in predict.ARITHMETIC else "B/s"),
        rate=Interval(low=value / spread, value=value, high=value * spread),
        call_s=call_s,
        shapes=9,
    )


def ceiling(name, value, dtype=None, threads=1):
    return Ceiling(name=name, unit="", value=value, low=value, high=value, dtype=dtype, threads=threads)


def machine(*kernels, ceilings=(), cache=0):
    identity = Identity(cpu="c", architecture="a", isa=(), cores=2, memory_bytes=1, os="o", python="p")
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None)
    caches = (Cache(level=3, size_bytes=cache, bandwidth_bytes_per_s=1e11, source="t"),) if cache else ()
    environment = Environment(identity=identity, conditions=conditions)
    return Machine(environment=environment, ceilings=ceilings, kernels=kernels, caches=caches)


def op(kind, *, name=None, flops=0.0, high=0.0, calls=1, weights=0.0, dtype="float32", shape="", time_s=None):
    return Op(
        name=name or kind,
        kind=kind,
        calls=calls,
        flops=flops,
        bytes_low=0.0,
        bytes_high=high,
        dtype=dtype,
        shape=shape,
        weights_bytes=weights,
        time_s=time_s,
    )


def ledger(*ops):
    return Ledger(ops=ops, batch=1, source="test")


def diagnosis(book, total_s, **terms):
    found = tuple(
        TermTime(
            term=Term(name), seconds=exactly(seconds) if seconds else Interval(low=0, value=0, high=0), evidence=""
        )
        for name, seconds in terms.items()
    )
    return Diagnosis(total_s=total_s, terms=found, dominant=None, why="", ledger=book, bounds=())


NET = ledger(
    op("conv", name="convolution", flops=1e9, high=4e6, calls=10),
    op("norm", name="native_batch_norm", flops=1e6, high=8e6, calls=10),
    op("elementwise", name="relu", flops=1e6, high=8e6, calls=10),
    op("view", name="view", calls=5),
    op("matmul", name="addmm", flops=1e8, high=4e6, calls=1, weights=4e6),
)


def test_eager_seconds_are_work_over_rate_plus_calls():
    host = machine(
        kernel("torch", "conv", 50e9, call_s=3e-6),
        kernel("torch", "matmul", 25e9, call_s=2e-6),
        kernel("torch", "norm", 8e9, call_s=9e-6),
        kernel("torch", "elementwise", 16e9, call_s=1e-6),
        ceilings=(ceiling("dispatch", 0.9e-6),),
    )
    found = predict.seconds(NET, host, target="torch", dtype="fp32", threads=1)
    expected = 0.02 + 30e-6 + 4e-3 + 2e-6 + 1e-3 + 90e-6 + 0.5e-3 + 10e-6 + 5 * 0.9e-6
    assert found.value == pytest.approx(expected)
    assert 0.0 < found.low < found.value < found.high


def test_a_whole_eager_call_pays_its_modules_and_may_fault_in_large_results():
    ceilings = (ceiling("dispatch", 1e-6), ceiling("module_call", 2e-6), ceiling("fault", 5e-7))
    kernels = [kernel(target, kind, 1e10) for target in ("torch", "ort") for kind in ("conv", "elementwise")]
    host = machine(*kernels, ceilings=ceilings)
    book = ledger(
        op("conv", flops=1e9, high=9e6, weights=1e6, calls=4),  # 1 MB of result each: mapped, and may fault
        op("elementwise", name="add", high=4e5, calls=10),  # 20 kB each: reused
        op("view", calls=7, high=9e9),
    )
    run, whole = (f(book, host, target="torch", dtype="fp32", threads=1) for f in (predict.seconds, predict.call))
    assert whole.low == run.low
    assert whole.value == pytest.approx(run.value + 14 * 2e-6)
    assert whole.high == pytest.approx(run.high + 28 * 2e-6 + 4e6 / 4096 * 5e-7)
    faults = Interval(low=100.0, value=400.0, high=900.0)
    run, paged = (
        predict.seconds(book, host, target="torch", dtype="fp32", threads=4),
        predict.call(book, host, target="torch", dtype="fp32", threads=4, faults=faults),
    )
    assert paged.low == pytest.approx(run.low + 100 * 5e-7 / 4)
    assert paged.value == pytest.approx(run.value + 14 * 2e-6 + 400 * 5e-7 / 2)
    assert paged.high == pytest.approx(run.high + 28 * 2e-6 + 900 * 5e-7)
    graph = {"target": "ort", "dtype": "fp32", "threads": 1}
    assert predict.call(book, host, **graph, faults=faults) == predict.seconds(book, host, **graph)
    assert predict.call(book, machine(), target="torch", dtype="fp32", threads=1) is None


def test_a_graph_runtime_keeps_only_what_it_cannot_fuse():
    names = [(one.name, one.calls) for one in predict.fused(NET)]
    assert names == [("convolution", 10), ("addmm", 1)]


def test_fusion_stops_where_producers_end():
    book = ledger(
        op("conv", flops=1.0, calls=4),
        op("elementwise", name="relu", high=6e6, calls=6),
        op("elementwise", name="add", high=1e6, calls=3),
        op("norm", name="native_layer_norm", high=1.0, calls=2),
        op("norm", name="BatchNormalization", high=8.0, calls=5),
    )
    left = {one.name: one.calls for one in predict.fused(book)}
    assert left == {"conv": 4, "relu": 2, "add": 3, "native_layer_norm": 2, "BatchNormalization": 1}
    assert next(one for one in predict.fused(book) if one.name == "relu").bytes_high == pytest.approx(2e6)


def test_residual_additions_take_what_activations_left():
    book = ledger(
        op("conv", flops=1.0, calls=5),
        op("elementwise", name="relu", calls=3),
        op("elementwise", name="add", calls=4),
    )
    assert {one.name: one.calls for one in predict.fused(book)} == {"conv": 5, "add": 2}


def test_kinds_without_narrow_kernels_run_at_float_rates():
    host = machine(
        kernel("ort", "conv", 50e9),
        kernel("ort", "conv", 150e9, dtype="int8"),
        kernel("ort", "pool", 10e9),
    )
    book = ledger(op("conv", flops=3e9), op("pool", high=1e9))
    assert predict.seconds(book, host, target="ort", dtype="int8", threads=1).value == pytest.approx(0.02 + 0.1)


def test_streaming_weights_bounds_a_thin_product():
    thin = ledger(op("matmul", flops=2e7, high=4e7, weights=4e7))
    fast = kernel("torch", "matmul", 100e9)
    dram, cache = ceiling("dram", 20e9), ceiling("cache", 80e9)

    def value(book, host, dtype="fp32"):
        return predict.seconds(book, host, target="torch", dtype=dtype, threads=1).value

    assert value(thin, machine(fast, ceilings=(dram, cache))) == pytest.approx(2e-3)
    assert value(thin, machine(fast, ceilings=(dram, cache), cache=1 << 30)) == pytest.approx(0.5e-3)
    assert value(thin, machine(fast, ceilings=(dram, cache)), "int8") == pytest.approx(0.5e-3)


def test_a_spread_rate_gives_a_wide_interval_which_many_shapes_narrow():
    host = machine(kernel("torch", "conv", 50e9, spread=2.0))
    sigma = 2 * math.log(2.0) / 2.563
    one = predict.seconds(ledger(op("conv", flops=1e9)), host, target="torch", dtype="fp32", threads=1)
    assert one.high / one.value == pytest.approx(math.exp(1.645 * sigma))
    many = ledger(*(op("conv", flops=1e8, shape=str(i)) for i in range(10)))
    ten = predict.seconds(many, host, target="torch", dtype="fp32", threads=1)
    assert ten.value == pytest.approx(one.value)
    assert 1.2 < ten.high / ten.value < one.high / one.value


def test_missing_calibration_falls_back_wider_and_wider():
    book = ledger(op("conv", flops=1e9))

    def width(host):
        found = predict.seconds(book, host, target="torch", dtype="fp32", threads=1)
        return found.high / found.low

    own = width(machine(kernel("torch", "conv", 50e9)))
    proxy = width(machine(kernel("torch", "matmul", 50e9)))
    roof = width(machine(ceilings=(ceiling("matmul", 100e9, "fp32"),)))
    assert own < proxy < roof
    assert roof > 5
    assert predict.seconds(book, machine(), target="torch", dtype="fp32", threads=1) is None


def test_moving_without_any_calibration_says_so():
    found = predict.moved(diagnosis(NET, 0.1), machine(), target="ort", dtype="fp32", threads=1)
    assert "nothing was calibrated" in found.basis
    assert (found.speedup.low, found.speedup.high) == (0.2, 20.0)


def test_the_gain_of_moving_is_measured_over_predicted():
    book = ledger(op("conv", flops=1e9, time_s=0.02))
    host = machine(kernel("torch", "conv", 50e9), kernel("ort", "conv", 200e9))
    found = predict.moved(diagnosis(book, 0.02, compute=0.02), host, target="ort", dtype="fp32", threads=1)
    assert found.speedup.value == pytest.approx(4.0)
    assert found.speedup.low < 4.0 < found.speedup.high


def test_a_part_of_the_present_error_carries_over():
    book = ledger(op("conv", flops=1e9, time_s=0.04))  # twice as slow as its rate says
    host = machine(kernel("torch", "conv", 50e9), kernel("ort", "conv", 200e9))
    found = predict.moved(diagnosis(book, 0.04, compute=0.04), host, target="ort", dtype="fp32", threads=1)
    assert found.speedup.value == pytest.approx(8.0 / 2.0**0.3)


def test_paging_stays_in_eager_torch_and_ends_in_a_graph_runtime():
    book = ledger(op("conv", flops=1e9, time_s=0.06))
    seen = diagnosis(book, 0.06, compute=0.02, paging=0.04)
    host = machine(
        kernel("torch", "conv", 50e9), kernel("torch", "conv", 100e9, dtype="bf16"), kernel("ort", "conv", 50e9)
    )
    stays = predict.moved(seen, host, target="torch", dtype="bf16", threads=1)
    ends = predict.moved(seen, host, target="ort", dtype="fp32", threads=1)
    assert stays.speedup.value == pytest.approx(0.06 / (0.04 + 0.01))
    assert ends.speedup.value == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("share", "factor", "expected"),
    [(0.95, 100.0, 16.8), (0.8, 100.0, 4.8), (1.0, 4.0, 4.0), (0.0, 50.0, 1.0), (0.5, 0.5, 2 / 3)],
)
def test_amdahl(share, factor, expected):
    seen = diagnosis(NET, 2.0)
    found = predict.amdahl(seen, seconds=exactly(2.0 * share), factor=exactly(factor), basis="because")
    assert found.speedup.value == pytest.approx(expected, rel=0.01)
    assert found.basis.startswith("because (")


positive = st.floats(0.01, 10.0)


@given(positive, positive, positive, st.floats(0.1, 50), st.floats(1.0, 3.0))
def test_the_interval_of_amdahl_holds_every_corner(total, a, b, factor, width):
    low, high = sorted((a, b))
    seconds = Interval(low=low, value=(low + high) / 2, high=high)
    factors = Interval(low=factor / width, value=factor, high=factor * width)
    found = predict.amdahl(diagnosis(NET, total), seconds=seconds, factor=factors, basis="").speedup
    assert found.low <= found.value <= found.high
    for touched in (low, high):
        share = min(1.0, touched / total)
        for times in (factors.low, factors.high):
            assert found.low - 1e-9 <= 1 / (1 - share + share / times) <= found.high + 1e-9


def test_amdahl_refuses_an_unmeasured_total():
    with pytest.raises(ValueError, match="without a measured time"):
        predict.amdahl(diagnosis(NET, 0.0), seconds=exactly(1.0), factor=exactly(2.0), basis="")


def test_seconds_of_kinds():
    book = ledger(op("conv", time_s=0.03), op("norm", time_s=0.01), op("view"))
    found = predict.of_kinds(diagnosis(book, 0.05), ["conv"])
    assert found.value == pytest.approx(0.03)
    assert predict.of_kinds(diagnosis(NET, 0.05), ["conv"]) is None
    over = dataclasses.replace(diagnosis(book, 0.02))
    assert predict.of_kinds(over, ["conv", "norm"]).high == 0.02


def test_moving_to_where_it_already_runs_changes_nothing():
    book = ledger(op("conv", flops=1e9, time_s=0.07), op("pool", high=1e6, time_s=0.01))
    host = machine(kernel("ort", "conv", 50e9, spread=3.0), kernel("ort", "pool", 1e9))
    seen = dataclasses.replace(diagnosis(book, 0.1, compute=0.09, residual=0.01), target="ort")
    found = predict.moved(seen, host, target="ort", dtype="fp32", threads=1)
    assert found.speedup.value == pytest.approx(1.0)
    assert found.speedup.high < 1.1


def test_on_the_same_target_only_the_new_kernels_change():
    book = ledger(op("conv", flops=1e9, time_s=0.06), op("pool", high=1e6, time_s=0.04))
    host = machine(kernel("ort", "conv", 50e9), kernel("ort", "conv", 150e9, dtype="int8"), kernel("ort", "pool", 1e9))
    seen = dataclasses.replace(diagnosis(book, 0.1), target="ort")
    found = predict.moved(seen, host, target="ort", dtype="int8", threads=1)
    assert found.speedup.value == pytest.approx(100 / (40 + 60 / 3))


def test_a_product_of_one_row_gets_the_slow_end_and_a_square_one_the_fast_end():
    host = machine(kernel("torch", "matmul", 40e9, spread=4.0))

    def rate(rows, inner, columns):
        elements = rows * inner + inner * columns + rows * columns
        one = op("matmul", flops=2.0 * rows * inner * columns, high=4.0 * elements)
        return one.flops / predict.seconds(ledger(one), host, target="torch", dtype="fp32", threads=1).value

    assert rate(1, 4096, 4096) == pytest.approx(10e9, rel=0.01)
    assert rate(1024, 1024, 1024) == pytest.approx(160e9, rel=0.1)
    assert 10e9 < rate(8, 512, 512) < rate(64, 512, 512) < 160e9


def test_a_rate_that_did_not_settle_is_used_widely_and_the_basis_says_so():
    book = ledger(op("conv", flops=1e9, time_s=0.02))
    good = machine(kernel("torch", "conv", 50e9), kernel("ort", "conv", 200e9))
    noisy = machine(*(dataclasses.replace(one, valid=False) for one in good.kernels))
    seen = diagnosis(book, 0.02, compute=0.02)
    firm, loose = (predict.moved(seen, host, target="ort", dtype="fp32", threads=1) for host in (good, noisy))
    assert loose.speedup.value == pytest.approx(firm.speedup.value)
    assert loose.speedup.high / loose.speedup.low > 2 * firm.speedup.high / firm.speedup.low
    assert "only 0% of that has settled kernel rates" in loose.basis
