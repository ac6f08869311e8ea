"""The goal's keywords are written once: what ``tune`` takes is what the goal knows and the docstring explains."""

from __future__ import annotations

import inspect
import re
from typing import get_type_hints

import pytest

import ironlaw as il
from ironlaw import goals
from ironlaw.records import Budget, Goal, Objective, UserError


def test_every_keyword_reaches_the_goal_with_its_type_and_is_explained() -> None:
    taken = {k: v for k, v in get_type_hints(goals.goal_of).items() if k != "return"}
    assert get_type_hints(goals.Wanted) == taken
    about = inspect.getdoc(il.tune) or ""
    explained = {n for line in re.findall(r"^    ([a-z_0-9, ]+):", about, re.MULTILINE) for n in line.split(", ")}
    assert set(taken) <= explained


def test_nothing_wanted_is_the_default_goal() -> None:
    assert goals.goal_of() == Goal()


def test_what_is_written_becomes_si() -> None:
    found = goals.goal_of(
        objective="latency", max_drop="2%", p99="5ms", rate="60/min", max_size="2MB", max_memory="1GB", cores=1
    )
    assert found == Goal(
        objective=Objective.LATENCY, max_drop=Budget(amount=0.02, relative=True), p99_s=0.005, rate_per_s=1.0,
        max_size_bytes=2_000_000, max_memory_bytes=10**9, cores=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        ({"objective": "speed"}, "Use: latency"),
        ({"objective": "size", "rate": "9/s"}, "Leave it away"),
        ({"target": "abacus"}, "onnxruntime"),
    ],
)
def test_a_goal_that_cannot_be_is_refused_with_what_to_do(wanted: goals.Wanted, remedy: str) -> None:
    with pytest.raises(UserError, match=remedy):
        goals.goal_of(**wanted)


def test_a_misspelt_keyword_is_named() -> None:
    with pytest.raises(TypeError, match="max_dorp"):
        il.tune("demo:digits", max_dorp="1pt")  # type: ignore[call-arg]
