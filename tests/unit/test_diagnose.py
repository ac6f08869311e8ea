"""Verdicts on situations with a known answer, and on twins that must not fire."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.diagnose import diagnose, merge
from ironlaw.diagnose.shares import roofs, side
from ironlaw.records import (
    Cache,
    Ceiling,
    Conditions,
    Energy,
    Environment,
    Execution,
    Identity,
    Interval,
    KernelRate,
    Ledger,
    Machine,
    Measurement,
    Op,
    Percentiles,
    Term,
    from_json,
    to_json,
)

PEAK, DRAM, CACHE, DISPATCH, FAULT = 100e9, 25e9, 100e9, 1e-6, 2e-6


def ceiling(name, value, dtype=None, threads=1, spread=0.1):
    low, high = value * (1 - spread), value * (1 + spread)
    return Ceiling(name=name, unit="", value=value, low=low, high=high, dtype=dtype, threads=threads)


def machine(*extra, without=(), cores=2, kernels=()):
    identity = Identity(cpu="c", architecture="a", isa=(), cores=cores, memory_bytes=1, os="o", python="p")
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None)
    ceilings = (
        ceiling("matmul", PEAK, "fp32"),
        ceiling("matmul", 4 * PEAK, "int8"),
        ceiling("matmul", 2 * PEAK, "bf16"),
        ceiling("matmul", 0.003 * PEAK, "fp16"),
        ceiling("dram", DRAM),
        ceiling("cache", CACHE),
        ceiling("dispatch", DISPATCH),
        ceiling("fault", FAULT),
        *extra,
    )
    return Machine(
        environment=Environment(identity=identity, conditions=conditions),
        ceilings=tuple(c for c in ceilings if c.name not in without),
        caches=(Cache(level=3, size_bytes=32 << 20, bandwidth_bytes_per_s=CACHE, source="test"),),
        kernels=kernels,
    )


def measured(total_s, *, faults=0.0, system_s=0.0, cpu_s=None):
    return Measurement(
        latency_s=Percentiles(p50=total_s, p90=None, p99=None, mean=total_s, samples=9),
        throughput_per_s=1 / total_s,
        batch=1,
        launches=1,
        blocks=1,
        peak_memory_bytes=1,
        size_bytes=1,
        load_s=0.0,
        prepare_s=0.0,
        warmup_calls=1,
        warm=True,
        faults_per_call=faults,
        system_s_per_call=system_s,
        cpu_s_per_call=total_s if cpu_s is None else cpu_s,
        threads_effective=1.0,
        foreign_cpu=0.0,
        energy_j=Energy(value=None, source="unknown"),
    )


def op(kind="matmul", *, flops=0.0, low=0.0, high=0.0, time_s=None, calls=1, name=None, **more):
    return Op(
        name=name or kind,
        kind=kind,
        calls=calls,
        flops=flops,
        bytes_low=low,
        bytes_high=high,
        time_s=time_s,
        **more,
    )


def ledger(*ops, **more):
    return Ledger(ops=ops, batch=1, source="test", **more)


GEMM = op(flops=1e9, low=1e6, high=3e6, time_s=12e-3)
STREAM = op("elementwise", flops=1e7, low=8e7, high=8e7, time_s=4e-3)
TINY = op("elementwise", flops=200 * 64, low=0, high=200 * 512, time_s=230e-6, calls=200)


def verdict(book, total_s, host=None, execution=None, **more):
    return diagnose(book, measured(total_s, **more), host or machine(), execution or Execution())


def bound(diagnosis, change):
    return next(one for one in diagnosis.bounds if one.change == change)


# ---------------------------------------------------------------- known situations and their twins


def test_two_hundred_tiny_operators_are_latency():
    found = verdict(ledger(TINY), 400e-6)
    assert found.dominant is Term.LATENCY
    assert found.share(Term.LATENCY) > 0.9
    assert bound(found, "int8").wasted
    assert bound(found, "unlimited FLOP/s").wasted
    assert not bound(found, "graph runtime or compiler").wasted
    assert "dispatch" in bound(found, "int8").reason


def test_twin_of_latency_same_count_of_large_operators():
    large = dataclasses.replace(STREAM, calls=200, time_s=0.8, bytes_low=1.6e10, bytes_high=1.6e10, flops=2e9)
    found = verdict(ledger(large), 0.8)
    assert found.dominant is Term.MEMORY
    assert found.share(Term.LATENCY) < 0.01


def test_page_faults_are_paging():
    found = verdict(ledger(GEMM, STREAM), 60e-3, faults=20_000, system_s=45e-3)
    assert found.dominant is Term.PAGING
    assert found.seconds(Term.PAGING) == pytest.approx(20_000 * FAULT)
    assert bound(found, "allocator settings").speedup == pytest.approx(3.0)
    assert bound(found, "bf16").speedup < 1.5


def test_twin_of_paging_the_same_run_cured():
    found = verdict(ledger(GEMM, STREAM), 20e-3, faults=3)
    assert found.share(Term.PAGING) < 0.001
    assert bound(found, "allocator settings").wasted


def test_faults_inside_operators_are_not_also_charged_to_memory():
    slow = dataclasses.replace(STREAM, time_s=44e-3)
    found = verdict(ledger(slow), 44e-3, faults=20_000)
    assert found.seconds(Term.PAGING) == pytest.approx(40e-3)
    assert found.seconds(Term.MEMORY) == pytest.approx(4e-3, rel=0.01)


def test_paging_is_bounded_by_system_time():
    found = verdict(ledger(dataclasses.replace(STREAM, time_s=44e-3)), 44e-3, faults=20_000, system_s=10e-3)
    assert found.seconds(Term.PAGING) == pytest.approx(10e-3)
    assert found.dominant is not Term.PAGING


def test_system_time_is_stretched_by_what_others_took():
    book = ledger(dataclasses.replace(STREAM, time_s=44e-3))
    found = verdict(book, 44e-3, faults=20_000, system_s=10e-3, cpu_s=22e-3)
    assert found.seconds(Term.PAGING) == pytest.approx(20e-3)


def test_big_products_are_compute():
    found = verdict(ledger(GEMM), 12.1e-3)
    assert found.dominant is Term.COMPUTE
    assert "headroom" in found.terms[1].evidence
    assert bound(found, "unlimited bandwidth").wasted
    assert bound(found, "int8").speedup == pytest.approx(12.1 / (12.1 - 11.999 * 0.75), rel=0.01)


def test_one_row_times_a_matrix_is_memory():
    gemv = op(flops=2 * 4096**2, low=4 * 4096**2, high=4 * 4096**2 + 32768, time_s=3e-3, weights_bytes=4.0 * 4096**2)
    found = verdict(ledger(gemv), 3.01e-3)
    assert found.dominant is Term.MEMORY
    assert bound(found, "unlimited FLOP/s").wasted
    assert bound(found, "batching").speedup > 10
    assert bound(found, "int8").speedup == pytest.approx(4.0, rel=0.05)


def test_a_chain_beyond_the_cache_is_memory():
    assert verdict(ledger(STREAM), 4.05e-3).dominant is Term.MEMORY


def test_straddling_operators_leave_it_undetermined():
    # from memory every operand: 25e9 B/s -> 8 ms; from the cache 2 ms; arithmetic 4 ms
    straddler = op("depthwise", flops=4e8, low=0.0, high=2e8, time_s=10e-3)
    found = verdict(ledger(straddler), 10e-3)
    assert found.dominant is None
    assert "undetermined" in found.why
    memory, compute = found.terms[0].seconds, found.terms[1].seconds
    assert (memory.low, compute.low) == (0.0, 0.0)
    assert memory.high >= 9e-3
    assert compute.high >= 9e-3


def test_time_that_nobody_explains_is_residual_and_no_verdict():
    found = verdict(ledger(GEMM), 60e-3)
    assert found.dominant is None
    assert found.share(Term.RESIDUAL) > 0.7
    assert "not explained" in found.why


def test_uncounted_operators_are_named():
    found = verdict(ledger(GEMM, op("other", name="mylib::magic", flops=None, high=8.0, time_s=40e-3)), 52e-3)
    assert found.dominant is None
    assert "mylib::magic" in found.why


def test_two_equal_terms_are_undetermined():
    both = ledger(dataclasses.replace(GEMM, time_s=10e-3), dataclasses.replace(STREAM, time_s=10e-3))
    assert verdict(both, 20e-3).dominant is None


# ---------------------------------------------------------------- sums, fits, missing ceilings


ops_strategy = st.lists(
    st.builds(
        op,
        st.sampled_from(["matmul", "elementwise", "conv", "copy", "view", "other"]),
        flops=st.one_of(st.none(), st.floats(0, 1e10)),
        low=st.just(0.0),
        high=st.floats(0, 1e9),
        time_s=st.one_of(st.none(), st.floats(0, 0.1)),
        calls=st.integers(1, 300),
    ),
    min_size=0,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(
    ops=ops_strategy,
    total_s=st.floats(1e-5, 1.0),
    faults=st.floats(0, 1e6),
    system_s=st.floats(0, 1.0),
    missing=st.sets(st.sampled_from(["dram", "cache", "matmul", "dispatch", "fault"])),
    target=st.sampled_from(["torch", "onnxruntime"]),
)
def test_terms_always_sum_to_the_measured_time(ops, total_s, faults, system_s, missing, target):
    found = verdict(
        ledger(*ops), total_s, machine(without=missing), Execution(target=target), faults=faults, system_s=system_s
    )
    assert math.fsum(one.seconds.value for one in found.terms) == pytest.approx(total_s, rel=1e-9)
    for one in found.terms:
        assert 0.0 <= one.seconds.low <= one.seconds.value <= one.seconds.high
    assert all(one.speedup > 0.0 for one in found.bounds)
    assert math.fsum(one.time_s or 0.0 for one in found.ledger.ops) <= total_s * (1 + 1e-9)
    assert from_json(type(found), to_json(found)) == found


def test_inflated_times_lose_the_same_per_call_before_anything_is_scaled():
    many = op("elementwise", flops=1e6, high=1e6, time_s=3e-3, calls=1000)
    big = op(flops=1e9, low=1e6, high=1e6, time_s=10e-3)
    found = verdict(ledger(many, big), 11e-3)
    assert found.seconds(Term.COMPUTE) == pytest.approx(10e-3, rel=0.01)
    assert "fitted" in found.terms[1].evidence


def test_a_profile_from_a_quieter_moment_is_scaled_to_the_timed_run():
    book = ledger(GEMM, profiled_s=12e-3)
    found = verdict(book, 30e-3)
    assert found.dominant is Term.COMPUTE
    assert found.share(Term.COMPUTE) > 0.95
    assert "2.5x" in found.terms[1].evidence


def test_a_compiled_artefact_has_terms_without_times():
    kernel = KernelRate(
        target="onnxruntime",
        kind="matmul",
        dtype="float32",
        threads=1,
        unit="FLOP/s",
        rate=Interval(low=40e9, value=50e9, high=60e9),
        call_s=1e-6,
        shapes=9,
    )
    book = ledger(dataclasses.replace(GEMM, time_s=None))
    found = verdict(book, 21e-3, machine(kernels=(kernel,)), Execution(target="onnxruntime"))
    assert found.seconds(Term.COMPUTE) == pytest.approx(20e-3, rel=0.01)
    assert found.seconds(Term.RESIDUAL) == pytest.approx(1e-3, rel=0.05)
    assert "no times per operator" in found.terms[1].evidence


def test_without_ceilings_nothing_is_claimed():
    found = verdict(ledger(GEMM), 12e-3, machine(without=("matmul", "dram", "cache", "dispatch", "fault")))
    assert found.dominant is None
    assert {one.change for one in found.bounds}.isdisjoint({"int8", "bf16", "fp16"})
    assert found.serial_bound_s is None


def refused(*ceilings):
    return tuple(dataclasses.replace(one, valid=False) for one in ceilings)


def test_refused_ceilings_are_taken_widely_and_named():
    near = op(flops=1e9, low=1e6, high=1.5e8, time_s=12e-3)  # compute by a factor of 1.7 only
    host = machine()
    noisy = dataclasses.replace(host, ceilings=refused(*host.ceilings))
    assert verdict(ledger(near), 12.1e-3, host).dominant is Term.COMPUTE
    found = verdict(ledger(near), 12.1e-3, noisy)
    assert found.dominant is None
    assert "probed while others had the CPU" in found.why
    assert verdict(ledger(GEMM), 12.1e-3, noisy).dominant is Term.COMPUTE  # no doubt of ten changes this


def test_a_refused_ceiling_that_contention_ruined_does_not_count():
    ruined = refused(ceiling("matmul", 1e7, "fp32", threads=2))
    host = machine()
    noisy = dataclasses.replace(host, ceilings=(*refused(*host.ceilings), *ruined))
    assert verdict(ledger(STREAM), 4.05e-3, noisy, Execution(threads=2)).dominant is Term.MEMORY


def test_without_ceilings_the_reason_is_the_machine_not_the_operators():
    found = verdict(ledger(GEMM), 12e-3, machine(without=("matmul", "dram", "cache")))
    assert "no ceiling" in found.why


def test_the_iron_law_bounds():
    found = verdict(ledger(GEMM, STREAM), 16e-3)
    latency = found.seconds(Term.LATENCY)
    assert found.serial_bound_s.low == pytest.approx(10e-3 + 1e6 / DRAM + 1e-4 + 3.2e-3 + latency)
    assert found.overlapped_bound_s.low == pytest.approx(10e-3 + 3.2e-3 + latency)


def test_the_table_shows_the_times_that_were_used():
    found = verdict(ledger(GEMM, STREAM, profiled_s=17e-3), 34e-3)
    assert [one.time_s for one in found.ledger.ops] == pytest.approx([24e-3, 8e-3])
    assert found.ledger.profiled_s == 34e-3


def test_a_warm_model_that_fits_the_cache_pays_no_memory():
    small = dataclasses.replace(GEMM, flops=3e6, bytes_low=1e6, bytes_high=1e6, time_s=60e-6)
    part, sure = side(small, roofs(machine(), ledger(small), 1))  # 30 us; 40 from memory, 10 from the cache
    assert (part, sure) == (pytest.approx(math.log(4 / 3) / math.log(4)), False)
    big = dataclasses.replace(small, flops=5e8, bytes_low=2e8, bytes_high=2e8, time_s=9e-3)
    assert side(big, roofs(machine(), ledger(big), 1)) == (1.0, True)  # 5 ms; 8 from memory, and nothing stays
    found = verdict(ledger(small), 61e-6)
    assert found.overlapped_bound_s.low == pytest.approx(30e-6 + found.seconds(Term.LATENCY))


def test_without_times_what_is_unexplained_may_be_anything():
    found = verdict(ledger(dataclasses.replace(GEMM, time_s=None)), 25e-3)
    assert found.share(Term.RESIDUAL) > 0.5
    assert found.dominant is None
    half = verdict(ledger(dataclasses.replace(GEMM, time_s=None)), 15e-3)
    assert half.terms[0].seconds.high >= 0.3 * 15e-3  # memory, though none was estimated


def test_emulated_fp16_is_a_waste_with_its_number():
    one = bound(verdict(ledger(GEMM), 12e-3), "fp16")
    assert one.wasted
    assert one.speedup < 0.01
    assert "0.003x" in one.reason


def rate(target, dtype, value, kind="matmul", **more):
    spread = Interval(low=0.8 * value, value=value, high=1.2 * value)
    shape = {"kind": kind, "threads": 1, "unit": "FLOP/s", "call_s": 0.0, "shapes": 4, **more}
    return KernelRate(target=target, dtype=dtype, rate=spread, **shape)


def test_a_bound_holds_for_the_runtime_that_is_fastest_at_such_products():
    """Torch's own int8 products are slow, OpenVINO's are not: a gain of 3 must not be called impossible."""
    kept = [one for one in machine().ceilings if one.dtype != "int8"]
    host = dataclasses.replace(machine(), ceilings=(*kept, ceiling("matmul", 0.02 * PEAK, "int8")))
    theirs = (rate("openvino", "int8", 3.0 * PEAK), rate("openvino", "float32", 1.5 * PEAK))

    def found(change, kernels):
        return bound(verdict(ledger(GEMM), 12e-3, dataclasses.replace(host, kernels=kernels)), change)

    assert found("int8", ()).wasted
    assert "0.02x here" in found("int8", ()).reason
    assert found("graph runtime or compiler", ()).wasted
    product_s, fast = 1e9 / PEAK, 1.2
    int8, graph = found("int8", theirs), found("graph runtime or compiler", theirs)
    assert int8.speedup == pytest.approx(12e-3 / (product_s / (3.0 * fast)), rel=0.02)
    assert "x here in openvino; what it saves besides" in int8.reason
    assert graph.speedup == pytest.approx(12e-3 / (product_s / (1.5 * fast)), rel=0.02)
    there = dataclasses.replace(host, kernels=theirs)
    same = bound(verdict(ledger(GEMM), 12e-3, there, Execution(target="openvino")), "int8")
    assert same.speedup == pytest.approx(int8.speedup, rel=0.02)
    assert "besides" not in same.reason
    disturbed = tuple(dataclasses.replace(one, valid=False) for one in theirs)
    assert found("int8", disturbed).wasted
    assert found("graph runtime or compiler", disturbed).wasted


def test_threads_scale_as_measured_and_not_beyond_the_cores():
    two = machine(ceiling("matmul", 1.5 * PEAK, "fp32", threads=2), ceiling("dram", 1.1 * DRAM, threads=2))
    assert bound(verdict(ledger(GEMM), 12e-3, two), "more threads").speedup == pytest.approx(1.5, rel=0.01)
    assert bound(verdict(ledger(STREAM), 4e-3, two), "more threads").speedup == pytest.approx(1.1, rel=0.01)
    all_used = bound(verdict(ledger(GEMM), 12e-3, two, Execution(threads=2)), "more threads")
    assert all_used.wasted
    assert "all 2 cores" in all_used.reason


def test_winograd_only_for_dense_three_by_three():
    conv = dataclasses.replace(GEMM, kind="conv", shape="1x64x56x56,64x64x3x3,64")
    pointwise = dataclasses.replace(conv, shape="1x64x56x56,64x64x1x1,64")
    assert bound(verdict(ledger(conv), 12e-3), "Winograd").speedup == pytest.approx(2.25, rel=0.01)
    assert bound(verdict(ledger(pointwise), 12e-3), "Winograd").wasted


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (GEMM, (0.0, True)),
        (STREAM, (1.0, True)),
        (op("copy", high=8.0), (1.0, True)),
        (op("other", flops=None, high=8.0), (None, False)),
        (op("elementwise", flops=1e6, low=0.0, high=8e6), (1.0, True)),  # even from the cache
    ],
)
def test_side_of_the_ridge(one, expected):
    assert side(one, roofs(machine(), ledger(one), 1)) == expected


# ---------------------------------------------------------------- merging


def test_merge_by_name_and_shape_then_kind():
    conv = op("conv", name="convolution", flops=10.0, high=1.0, shape="1x3,2x3")
    other = op("conv", name="convolution", flops=30.0, high=1.0, shape="9x9,2x3")
    timed = [
        op("conv", name="convolution", flops=None, shape="1x3,2x3", time_s=1.0),
        op("conv", name="FusedConv", flops=None, shape="?", time_s=3.0),
        op("other", name="mystery", flops=None, time_s=0.5),
        op("other", name="ironlaw::observer", flops=None, time_s=9.0),
        op("other", name="ironlaw::call", flops=None, time_s=5.0),
    ]
    merged = merge(ledger(conv, other), timed)
    assert [(one.name, one.time_s) for one in merged.ops] == [
        ("convolution", 1.0),
        ("convolution", 3.0),
        ("mystery", 0.5),
    ]
    assert (merged.observer_s, merged.profiled_s, merged.uncounted) == (9.0, 5.0, ("mystery",))


def test_merge_shares_a_time_by_work():
    merged = merge(ledger(op(name="a", flops=1.0), op(name="b", flops=3.0)), [op(name="ab", flops=None, time_s=4.0)])
    assert [one.time_s for one in merged.ops] == [1.0, 3.0]


def test_merge_takes_the_list_of_a_runtime_that_counts_itself():
    counted = ledger(op("conv", flops=10.0, low=50.0, high=100.0), op("elementwise", flops=1.0, high=8.0))
    ran = [op("conv", name="Conv_1", flops=11.0, low=1.0, high=60.0, time_s=2.0)]
    (one,) = merge(counted, ran).ops
    assert (one.name, one.flops, one.bytes_low) == ("Conv_1", 11.0, 30.0)


def test_arithmetic_that_a_runtime_leaves_out_is_the_ledgers():
    counted = ledger(op("recurrent", name="LSTM", flops=1e6, low=50.0, high=100.0))
    ran = [
        op("recurrent", name="a", flops=10.0, high=50.0, time_s=1.0),
        op("recurrent", name="b", high=50.0, time_s=3.0),
    ]
    assert [one.flops for one in merge(counted, ran).ops] == [2.5e5, 7.5e5]


def test_merge_without_a_profile_changes_nothing():
    assert merge(ledger(GEMM), ()) == ledger(GEMM)


@given(ops=ops_strategy, timed=ops_strategy)
def test_merge_keeps_the_sum_of_times(ops, timed):
    book = ledger(*(dataclasses.replace(one, time_s=None) for one in ops))
    merged = merge(book, timed)
    expected = math.fsum(one.time_s or 0.0 for one in timed)
    assert math.fsum(one.time_s or 0.0 for one in merged.ops) == pytest.approx(expected, abs=1e-12)
