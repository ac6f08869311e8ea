"""Roofline and iron law: the paper's machine, algebra between the forms, refusals."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.laws import iron_law, roofline

positive = st.floats(1e-3, 1e12)
OPTERON = {"peak_flops_per_s": 17.6e9, "bandwidth_bytes_per_s": 15e9}


def test_opteron_x2_of_the_paper():
    """Williams et al.: Opteron X2, 17.6 GFLOP/s and 15 GB/s; the ridge lies between 1 and 2 FLOP/byte."""
    assert roofline.ridge_flop_per_byte(**OPTERON) == pytest.approx(1.173, abs=1e-3)
    assert roofline.attainable_flops_per_s(intensity_flop_per_byte=0.5, **OPTERON) == 7.5e9
    assert roofline.attainable_flops_per_s(intensity_flop_per_byte=8, **OPTERON) == 17.6e9


@given(flops=positive, moved=positive, peak=positive, bandwidth=positive)
def test_time_and_rate_are_two_views_of_one_roof(flops, moved, peak, bandwidth):
    machine = {"peak_flops_per_s": peak, "bandwidth_bytes_per_s": bandwidth}
    rate = roofline.attainable_flops_per_s(intensity_flop_per_byte=flops / moved, **machine)
    assert flops / rate == pytest.approx(roofline.time_s(flops=flops, traffic_bytes=moved, **machine))
    at_ridge = roofline.attainable_flops_per_s(
        intensity_flop_per_byte=roofline.ridge_flop_per_byte(**machine), **machine
    )
    assert at_ridge == pytest.approx(peak)


def test_levels_take_the_tightest_roof():
    found = roofline.hierarchical_flops_per_s(
        flops=1e9, traffic_bytes=[4e8, 1e8, 0], bandwidths_bytes_per_s=[10e9, 5e9, 1], peak_flops_per_s=100e9
    )
    assert found == pytest.approx(25e9)
    one = roofline.hierarchical_flops_per_s(
        flops=1e9, traffic_bytes=[1e9], bandwidths_bytes_per_s=[15e9], peak_flops_per_s=17.6e9
    )
    assert one == roofline.attainable_flops_per_s(intensity_flop_per_byte=1, **OPTERON)
    with pytest.raises(ValueError, match="same levels, got 2 and 1"):
        roofline.hierarchical_flops_per_s(flops=1, traffic_bytes=[1, 2], bandwidths_bytes_per_s=[1], peak_flops_per_s=1)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1, 9, "memory"), (21, 30, "compute"), (1, 30, "undetermined"), (12, 15, "undetermined"), (5, 10, "undetermined")],
)
def test_no_verdict_unless_the_whole_interval_is_on_one_side(low, high, verdict):
    assert roofline.bound_by(intensity_low=low, intensity_high=high, ridge_low=10, ridge_high=20) == verdict
    with pytest.raises(ValueError, match="intensity_low must not exceed"):
        roofline.bound_by(intensity_low=2, intensity_high=1, ridge_low=1, ridge_high=1)


RUN = {"traffic_bytes": 1e9, "bandwidth_bytes_per_s": 25e9, "flops": 2e9, "peak_flops_per_s": 100e9}


def test_terms_by_hand():
    terms = iron_law.terms(**RUN, efficiency=0.5, latency_s=0.001)
    assert (terms.memory_s, terms.compute_s, terms.latency_s) == (0.04, 0.04, 0.001)
    assert terms.serial_s == pytest.approx(0.081)
    assert terms.overlapped_s == pytest.approx(0.041)


@given(moved=positive, flops=positive, bandwidth=positive, peak=positive, eta=st.floats(0.01, 1), late=positive)
def test_overlap_gains_at_most_two(moved, flops, bandwidth, peak, eta, late):
    run = {
        "traffic_bytes": moved,
        "flops": flops,
        "bandwidth_bytes_per_s": bandwidth,
        "peak_flops_per_s": peak,
        "efficiency": eta,
    }
    serial, overlapped = iron_law.serial_s(**run, latency_s=late), iron_law.overlapped_s(**run, latency_s=late)
    assert overlapped <= serial * (1 + 1e-12)
    assert serial <= 2 * overlapped * (1 + 1e-12)
    assert iron_law.serial_s(**run) <= serial


def test_overlapped_without_latency_is_the_roofline():
    expected = roofline.time_s(flops=2e9, traffic_bytes=1e9, peak_flops_per_s=1e11, bandwidth_bytes_per_s=25e9)
    assert iron_law.overlapped_s(**RUN) == expected


def test_processor():
    assert iron_law.processor_s(instructions=1e9, cycles_per_instruction=2, clock_hz=1e9) == 2.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"efficiency": 1.2},
        {"efficiency": 0},
        {"latency_s": -1},
        {"bandwidth_bytes_per_s": 0},
        {"flops": math.nan},
        {"peak_flops_per_s": math.inf},
        {"traffic_bytes": "1"},
    ],
)
def test_wrong_inputs_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        iron_law.serial_s(**{**RUN, **wrong})
