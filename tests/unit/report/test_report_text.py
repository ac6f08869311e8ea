"""Units and sentences: what a reader is told, to the digit."""

from __future__ import annotations

import dataclasses
import math

import factory
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.records import Budget, Goal, Interval, Objective, Term
from ironlaw.report import predictions, units, words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1.00"), (2.346, "2.35"), (9.996, "10.0"), (99.96, "100"), (0.0123, "0.0123"), (-1.5, "−1.50"),
     (1234.5, "1,230"), (999_900, "1,000,000"), (1.5e7, "1.50e+07"), (1e-9, "1.00e−09")],
)  # fmt: skip
def test_number(value: float, text: str) -> None:
    assert units.number(value) == text


@given(st.floats(min_value=1e-4, max_value=9.9e5))
def test_number_is_right_to_half_a_unit_of_the_third_digit(value: float) -> None:
    assert float(units.number(value).replace(",", "")) == pytest.approx(value, rel=5.01e-3)


@pytest.mark.parametrize(
    ("value_s", "text"),
    [(0, "0 s"), (3e-10, "0.300 ns"), (8.45e-4, "845 µs"), (0.0123, "12.3 ms"), (0.99999, "1.00 s"), (2.408, "2.41 s"),
     (119.9, "2 min 0 s"), (278, "4 min 38 s"), (7260, "2 h 1 min"), (None, "unknown")],
)  # fmt: skip
def test_seconds(value_s: float | None, text: str) -> None:
    assert units.seconds(value_s) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (4_650_000, "4.65 MB"), (999_999, "1.00 MB"), (2e12, "2.00 TB"), (None, "unknown")],
)
def test_sizes_are_powers_of_a_thousand(value: float | None, text: str) -> None:
    assert units.size(value) == text


def test_a_drop_is_in_points_per_cent_or_the_metric_s_own_unit() -> None:
    assert units.drop(0.002, relative=False, metric_value=0.98) == "0.2 pt"
    assert units.drop(-0.0001, relative=False, metric_value=0.98) == "−0.01 pt"
    assert units.drop(0.002, relative=True, metric_value=29.2) == "0.2 %"
    assert units.drop(1.5, relative=False, metric_value=29.2) == "1.5"
    assert units.drop_range(-0.002, 0.006, relative=False, metric_value=0.98) == "−0.2 to 0.6 pt"
    assert units.signed(-0.0) == "0"


def test_text_that_steers_is_defused() -> None:
    assert units.plain("a\x1b[31mb\u202ec\nd\te\ud800") == "a\ufffd[31mb\ufffdc\nd\te?"


def test_the_summary_answers_each_question_with_its_interval() -> None:
    said = words.summary(factory.full_run())
    assert said.headline == "6.60× faster"
    assert said.proof == "95 % interval 6.43–6.76×, accuracy drop 0.2 pt (−0.2 to 0.6 pt)"
    assert said.limited_by.startswith("Compute, 55 % of 17.2 ms a call: ")
    assert said.done == (
        "onnxruntime_int8(scheme=u8s8, per_channel=True, calibration=entropy) + threads(intra=2), run by onnxruntime."
    )
    assert "latency p50 17.2 ms to 2.61 ms" in said.gain
    assert said.gain.endswith("The smallest gain that can be claimed here is 1.02×.")
    assert "within the budget of 1pt" in said.quality
    assert "2,000 examples can rule out is 0.15 pt" in said.quality
    assert said.limits_now.startswith("Undetermined, in 2.61 ms a call: ")
    # 2.606 ms over the low end of the overlapped bound: 1 / (0.48 * 0.95)
    assert f"At most {1 / (0.48 * 0.95):.2f}× is left" in said.remaining[0]
    assert said.remaining[1:] == (
        "Would still help: fuse the remaining element-wise operators (at most 1.14×, attacks latency).",
        "Would be wasted: a faster accelerator (at most 1.04×, attacks compute).",
    )
    assert said.warning == ""


def test_what_is_not_proven_is_never_called_a_gain() -> None:
    run = factory.full_run()
    unsettled = dataclasses.replace(run, best="t08")
    assert words.headline(unsettled) == "3.13× faster, not proven"
    assert "other work on this machine" in words.summary(unsettled).gain
    below = dataclasses.replace(run, best="t09")
    assert words.headline(below) == "1.01× faster, not proven"
    over = dataclasses.replace(run, best="t04")
    assert "not proven to be within the budget" in words.summary(over).quality


def test_runs_without_a_winner_say_so() -> None:
    failed, alone = factory.failed_run(), factory.baseline_only()
    assert words.headline(failed) == "Nothing beat the baseline"
    assert words.headline(alone) == "Only the baseline was measured"
    assert words.summary(failed).done == "Nothing: the baseline stays."
    assert words.summary(failed).limits_now == words.summary(failed).limited_by
    assert "objective latency, quality drop at most 1pt, p99 at most 20.0 ms" in words.summary(alone).warning


def test_unknown_is_said() -> None:
    said = words.summary(factory.unknown_run())
    assert said.headline == "Gain unknown"
    assert "drop unknown" in said.quality
    assert said.remaining == ("The bound is unknown: the ceilings or the operators could not be counted.",)
    undiagnosed = dataclasses.replace(factory.full_run(), best_diagnosis=None)
    assert "not diagnosed" in words.summary(undiagnosed).limits_now


@pytest.mark.parametrize("objective", Objective)
def test_every_objective_has_its_comparative(objective: Objective) -> None:
    run = factory.full_run(goal=Goal(objective=objective, max_drop=Budget(amount=0.02, relative=True)))
    assert words.headline(run) == f"6.60× {words.BETTER[objective]}"
    assert "budget of 2%" in words.summary(run).quality


def test_a_bound_above_the_measured_time_leaves_nothing() -> None:
    slow = Interval(low=1.0, value=2.0, high=3.0)
    fast = dataclasses.replace(factory.diagnosis(0.5), overlapped_bound_s=slow)
    assert "At most 1.00× is left" in next(iter(words.remaining(fast)))


def test_terms_keep_their_order_and_the_residual_is_last() -> None:
    first = factory.diagnosis(1.0, {Term.RESIDUAL: 0.1, Term.IO: 0.9})
    second = factory.diagnosis(1.0, {Term.COMPUTE: 0.9, Term.RESIDUAL: 0.1})
    assert words.terms_in_order(first, None, second) == [Term.IO, Term.COMPUTE, Term.RESIDUAL]


def test_the_score_of_predictions_counts_rejected_trials_too() -> None:
    run = factory.full_run()
    found = predictions.pairs(run)
    both = [t.id for t in run.trials if t.predicted and t.gain]
    assert [p.trial.id for p in found] == both
    assert "t04" in both
    inside = [p for p in found if p.covered]
    assert len(inside) == len(both)
    errors = sorted(abs(math.log(p.predicted.speedup.value / p.gain.median)) for p in found)
    assert f"(|ln| {errors[len(errors) // 2]:.2f})" in predictions.score(run)
    assert f"{len(both)} of {len(both)} measured gains" in predictions.score(run)
    assert "No trial" in predictions.score(factory.failed_run())
