from __future__ import annotations

import pytest

from ironlaw import quantities
from ironlaw.records import Budget, UserError


@pytest.mark.parametrize(
    ("text", "expected"), [("5ms", 0.005), ("10min", 600.0), ("2", 2.0), ("1.5h", 5400.0), ("3us", 3e-6)]
)
def test_seconds(text: str, expected: float) -> None:
    assert quantities.seconds(text, "--p99") == pytest.approx(expected)


@pytest.mark.parametrize(("text", "expected"), [("200kB", 200_000), ("2MB", 2_000_000), ("1GiB", 2**30), ("17", 17)])
def test_sizes(text: str, expected: int) -> None:
    assert quantities.size_bytes(text, "--max-size") == expected


def test_budgets() -> None:
    assert quantities.budget("1pt", "x") == Budget(amount=0.01, relative=False)
    assert quantities.budget("2%", "x") == Budget(amount=0.02, relative=True)
    assert quantities.budget(0.005, "x") == Budget(amount=0.005, relative=False)
    assert str(quantities.budget("0.5pt", "x")) == "0.5pt"


@pytest.mark.parametrize("bad", ["", "fast", "-3ms", "0s", "5 parsecs"])
def test_bad_durations_say_what_is_wanted(bad: str) -> None:
    with pytest.raises(UserError, match="5ms, 30s or 10min") as caught:
        quantities.seconds(bad, "--p99")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("bad", ["1 point", "-1pt", "200%", "x"])
def test_bad_budgets(bad: str) -> None:
    with pytest.raises(UserError):
        quantities.budget(bad, "--max-drop")
