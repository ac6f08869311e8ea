"""Which screened points stay in the race: what is broken for certain is out, what so few calls cannot say is not."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from ironlaw.judging import Judge
from ironlaw.measure.paired import Launch
from ironlaw.measure.summary import memory_gain
from ironlaw.records import Goal, Outcome, Trial

sys.path.insert(0, str(Path(__file__).parent / "report"))
import factory

NO_BENCH: Any = None


def screened(p99: float | None) -> Trial:
    """A point within the quality budget that breaks some limit, with or without a known p99."""
    best = factory.full_run().best_trial
    assert best.measured is not None
    latency = dataclasses.replace(best.measured.latency_s, p99=p99)
    measured = dataclasses.replace(best.measured, latency_s=latency, size_bytes=1000)
    return dataclasses.replace(best, outcome=Outcome.CONSTRAINT, measured=measured)


@pytest.mark.parametrize(
    ("goal", "p99", "stays"),
    [
        (Goal(p99_s=0.2), None, True),
        (Goal(p99_s=0.2), 0.5, False),
        (Goal(p99_s=0.2, max_size_bytes=10), None, False),
        (Goal(p99_s=0.2, target="nosuch"), None, False),
    ],
    ids=["too few calls for p99", "p99 is over", "too large besides", "another runtime is asked"],
)
def test_a_percentile_that_is_not_known_yet_keeps_a_point_in_the_race(goal: Goal, p99: float, stays: bool) -> None:
    assert Judge(bench=NO_BENCH, goal=goal).may_win(screened(p99)) is stays


def peaks(*megabytes: float) -> list[Launch]:
    return [Launch(peak_memory_bytes=int(m * 1e6)) for m in megabytes]


def test_memory_that_varies_from_launch_to_launch_is_no_gain() -> None:
    baseline, again = peaks(100, 104, 96), peaks(99, 105, 97)
    assert not memory_gain(peaks(98, 103, 95, 100, 97), baseline, again).proven
    found = memory_gain(peaks(33, 34, 33, 32, 33), baseline, again)
    assert found.proven
    assert found.low < 100 / 33 < found.high
