"""The search: most gain a second first, hopeless plans never, siblings learn from each other."""

from __future__ import annotations

import math

import pytest

from ironlaw.plan.search import START_S, Search
from ironlaw.plan.space import Plan, Step
from ironlaw.records import Interval, Prediction


def plan(
    name: str, low: float, value: float, high: float, *, cost_s: float = 1.0, family: str = "", **more: bool
) -> Plan:
    step = Step(lever=name.split("-")[0], version=1, settings=(("variant", name),))
    predicted = Prediction(speedup=Interval(low=low, value=value, high=high), basis="test")
    return Plan(steps=(step,), predicted=predicted, cost_s=cost_s, family=family or name, **more)


def names(plans: list[Plan]) -> list[str]:
    return [str(dict(p.steps[-1].settings)["variant"]) for p in plans]


def test_gain_per_second_orders() -> None:
    search = Search()
    search.add([plan("slow", 2, 3, 4, cost_s=300), plan("quick", 1.5, 2, 2.5, cost_s=1), plan("weak", 1, 1.1, 1.2)])
    assert names(search.next_batch(3)) == ["quick", "weak", "slow"]


def test_hopeless_are_dropped_with_a_reason() -> None:
    search = Search()
    good, weak = plan("good", 2, 3, 4), plan("weak", 1, 1.1, 1.5)
    search.add([good, weak])
    assert names(search.next_batch(1)) == ["good"]
    search.observe(good, 3.0, within_budget=True)
    assert search.next_batch(5) == []
    ((dropped, why),) = search.dropped
    assert dropped == weak
    assert "at most 1.50x" in why
    assert "3.00x" in why


def test_a_point_over_the_budget_does_not_raise_the_bar() -> None:
    search = Search()
    fast, other = plan("fast", 2, 3, 4), plan("other", 1, 1.2, 1.5)
    search.add([fast, other])
    search.observe(search.next_batch(1)[0], 3.0, within_budget=False)
    assert names(search.next_batch(1)) == ["other"]


def test_one_of_an_unknown_family_at_a_time() -> None:
    search = Search()
    search.add([plan("int8-a", 2, 3, 4, family="f"), plan("int8-b", 2, 3, 4, family="f"), plan("z", 1, 1.3, 2)])
    assert names(search.next_batch(3)) == ["int8-a", "z"]


def test_siblings_of_a_good_point_are_dropped_of_a_bad_one_tried() -> None:
    for within, expected in ((True, []), (False, ["int8-b"])):
        search = Search()
        first, second = plan("int8-a", 2, 3, 9, family="f"), plan("int8-b", 2, 2.9, 9, family="f")
        search.add([first, second])
        search.next_batch(1)
        search.observe(first, 2.0, within_budget=within)
        assert names(search.next_batch(1)) == expected


def test_what_must_be_on_the_table_is_never_dropped_and_comes_when_nothing_better_is_left() -> None:
    search = Search()
    search.add([plan("good", 9, 9, 9), plan("always", 0.5, 0.8, 0.9, forced=True), plan("hopeless", 0.5, 0.8, 0.9)])
    search.best = 5.0
    assert names(search.next_batch(1)) == ["good"]
    assert names(search.next_batch(2)) == ["always"]


def test_what_costs_more_than_is_left_is_put_aside_with_a_reason() -> None:
    search = Search()
    search.add([plan("slow", 2, 3, 4, cost_s=100), plan("quick", 2, 3, 4, cost_s=1)])
    assert names(search.next_batch(5, 60.0)) == ["quick"]
    ((late, why),) = search.unaffordable
    assert late.steps[-1].lever == "slow"
    assert "up to 4.00x predicted, about 104 s to try" in why
    assert not search.dropped


def test_same_steps_in_another_order_are_one_plan() -> None:
    one, two = (Step(lever=name, version=1, settings=()) for name in ("a", "b"))
    predicted = Prediction(speedup=Interval(low=1, value=2, high=3), basis="test")
    search = Search()
    search.add([Plan(steps=(one, two), predicted=predicted, cost_s=1, family="x")])
    search.add([Plan(steps=(two, one), predicted=predicted, cost_s=1, family="y")])
    assert len(search.next_batch(5)) == 1


def test_a_surprise_keeps_others_from_the_same_point_alive() -> None:
    """int8 in one runtime ran three times faster than predicted: the other runtime may as well."""
    search = Search()
    one, two = plan("int8-ort", 3.5, 6, 8.5), plan("int8-ov", 3.6, 5.7, 8.3)
    search.add([one, two])
    assert names(search.next_batch(1)) == ["int8-ort"]
    search.observe(one, 18.0, within_budget=True)
    assert names(search.next_batch(1)) == ["int8-ov"]


def test_a_round_tries_several_levers_rather_than_one_lever_several_times() -> None:
    search = Search()
    search.add([plan(f"int8-{x}", 2, 3.5, 5, cost_s=6.0, lossy=True) for x in "abc"])
    search.add([plan("runtime-ort", 2, 2.6, 3.5, cost_s=6.0), plan("compile-f", 1.2, 1.5, 1.9, cost_s=60.0)])
    assert names(search.next_batch(3)) == ["runtime-ort", "int8-a", "int8-b"]


def test_a_lever_that_lost_quality_is_less_likely_to_keep_it_next_time() -> None:
    search = Search()
    bad, next_bad, exact = (
        plan("int8-a", 2, 3, 5, lossy=True),
        plan("int8-b", 2, 3, 5, lossy=True),
        plan("z", 1, 1.9, 2),
    )
    search.add([bad, next_bad, exact])
    assert names(search.next_batch(1)) == ["int8-a"]
    search.observe(bad, 3.0, within_budget=False)
    assert names(search.next_batch(1)) == ["z"]
    unjudged = Search()
    unjudged.add([bad, next_bad, exact])
    unjudged.next_batch(1)
    unjudged.observe(bad, 3.0, within_budget=None)
    assert names(unjudged.next_batch(1)) == ["int8-b"]


def test_a_levers_error_is_half_shared_and_lowers_no_bound() -> None:
    search = Search()
    large, small, other = plan("batch-64", 1, 1.6, 2), plan("batch-32", 1, 1.5, 2), plan("other", 1, 1.3, 2)
    search.add([large, small, other])
    assert names(search.next_batch(1)) == ["batch-64"]
    search.observe(large, 0.4, within_budget=None)
    expected = search.expected(small)
    assert expected.value == pytest.approx(1.5 * math.sqrt(0.4 / 1.6))
    assert expected.high == 2.0
    assert names(search.next_batch(1)) == ["other"]


def test_a_round_fits_into_the_time_that_is_left_and_counts_scoring() -> None:
    search = Search(call_s=0.2, score_s=20.0)
    search.add([plan("a", 2, 2, 2, cost_s=10.0), plan("b", 2, 2, 2, cost_s=10.0), plan("c", 2, 2, 2, cost_s=10.0)])
    assert search.cost_s(search.open["a(variant=a)"]) == pytest.approx(10.0 + START_S + 5 * 0.2 + 20.0 / 2)
    assert names(search.next_batch(3, 60.0)) == ["a", "b"]
