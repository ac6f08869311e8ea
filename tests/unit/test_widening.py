"""Outcomes on other workloads widen a lever's intervals to nine tenths of what was seen, and never narrow them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from ironlaw.plan.widening import Widening
from ironlaw.records import Forecast, Interval, Prediction

PREDICTED = Prediction(speedup=Interval(low=1.6, value=2.0, high=2.4), basis="counted")
SEEN = Forecast(
    lever="int8", version=1, kind="inference", target="onnxruntime",
    low=1.6, value=2.0, high=2.4, widened=1.0, measured=2.0, workload="a",
)  # fmt: skip


def outcomes(*measured: float, **other: object) -> list[Forecast]:
    return [replace(SEEN, measured=m, **other) for m in measured]


def test_intervals_that_hold_stay() -> None:
    held = Widening(outcomes(*[1.7] * 20), "b")
    assert held(PREDICTED, "int8", 1, "inference") is PREDICTED


def test_the_interval_is_stretched_until_nine_tenths_would_have_been_inside() -> None:
    seen = outcomes(*[2.0 * 1.2**i for i in range(10)])
    wide = Widening(seen, "b")(PREDICTED, "int8", 1, "inference")
    assert wide.speedup.value == 2.0
    assert wide.speedup.high == pytest.approx(2.0 * 1.2**9)  # the 10th of 10: ceil(0.9 * 11)
    assert wide.speedup.low == pytest.approx(2.0 * 0.8 ** (9.0))
    assert wide.widened == pytest.approx(9.0)
    assert "widened 9.00 times by 10 outcomes on other workloads" in wide.basis


def test_fewer_than_nine_outcomes_say_nothing_and_nine_do() -> None:
    assert Widening(outcomes(*[9.0] * 8), "b").power("int8", 1, "inference") == 1.0
    assert Widening(outcomes(*[9.0] * 9), "b").power("int8", 1, "inference") > 1.0


@pytest.mark.parametrize(
    "other", [{"workload": "b"}, {"workload": ""}, {"lever": "x"}, {"version": 2}, {"kind": "fit"}]
)
def test_outcomes_of_this_workload_another_lever_version_or_kind_do_not_count(other: dict[str, object]) -> None:
    assert Widening(outcomes(*[9.0] * 20, **other), "b").power("int8", 1, "inference") == 1.0


def test_what_was_shown_widened_counts_against_the_levers_own_interval() -> None:
    power = 3.0
    own = outcomes(*[5.0] * 12)
    shown = outcomes(*[5.0] * 12, low=2.0 * 0.8**power, high=2.0 * 1.2**power, widened=power)
    assert Widening(shown, "b").power("int8", 1, "inference") == pytest.approx(
        Widening(own, "b").power("int8", 1, "inference")
    )


def test_future_outcomes_of_the_same_errors_are_covered() -> None:
    draw = random.Random(3)
    inside = total = 0
    for _ in range(60):
        past = outcomes(*[2.0 * math.exp(draw.gauss(0.1, 0.5)) for _ in range(30)])
        wide = Widening(past, "b")(PREDICTED, "int8", 1, "inference").speedup
        for _ in range(20):
            total += 1
            inside += wide.low <= 2.0 * math.exp(draw.gauss(0.1, 0.5)) <= wide.high
    assert inside / total > 0.87


def test_an_interval_without_width_is_taken_as_two_per_cent() -> None:
    exact = replace(SEEN, low=2.0, high=2.0, measured=2.0 * 1.02**3)
    assert exact.reach == pytest.approx(3.0)
