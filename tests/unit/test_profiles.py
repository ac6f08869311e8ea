"""Which of a few profiles is believed: one that others disturbed is taken again, where that is cheap."""

from __future__ import annotations

from typing import Any

import pytest

from ironlaw.measure.profiles import CALLS, PROFILE_S, profiled


class Disturbed:
    """Profiles that take as long as told, one after the other."""

    def __init__(self, *totals_s: float) -> None:
        self.totals_s = totals_s
        self.calls: list[int] = []

    def profile(self, calls: int) -> list[dict[str, Any]]:
        self.calls.append(calls)
        return [{"name": "addmm", "time_s": self.totals_s[len(self.calls) - 1]}, {"name": "view", "time_s": None}]


@pytest.mark.parametrize(
    ("totals_s", "calls_s", "taken", "kept_s"),
    [
        ((0.011, 9.0, 9.0), [0.01, 0.012], 1, 0.011),
        ((0.5, 0.012, 9.0), [0.01], 2, 0.012),
        ((0.5, 0.4, 0.6), [0.01], 3, 0.4),
        ((0.5, 0.4, 0.6), [0.3, 0.01], 3, 0.4),
        ((9.0, 2.0, 2.0), [2.0], 1, 9.0),
        ((0.5, 0.4, 0.3), [], 1, 0.5),
    ],
    ids=["quiet", "second", "least of three", "a slow launch among them", "dear", "nothing timed"],
)
def test_a_profile_that_others_disturbed_is_taken_again(
    totals_s: tuple[float, ...], calls_s: list[float], taken: int, kept_s: float
) -> None:
    worker = Disturbed(*totals_s)
    assert profiled(worker, calls_s)[0]["time_s"] == kept_s
    assert len(worker.calls) == taken


@pytest.mark.parametrize(("call_s", "calls"), [(1e-4, CALLS[1]), (0.2, int(PROFILE_S / 0.2)), (5.0, CALLS[0])])
def test_a_profile_takes_about_as_long_whatever_the_call(call_s: float, calls: int) -> None:
    worker = Disturbed(call_s)
    profiled(worker, [call_s])
    assert worker.calls == [calls]
