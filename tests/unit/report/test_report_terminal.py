"""Terminal tables: complete, readable at 80 columns, without colour when asked, and never steered by names."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import factory
import pytest
from hypothesis import HealthCheck, given, settings
from rich.console import Console, RenderableType

from ironlaw.records import Axis, Kind, Run, Term
from ironlaw.report import terminal


def show(what: RenderableType, width: int = 80, **more: bool) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, **more).print(what)  # type: ignore[arg-type]
    return stream.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("make", factory.EVERY.values(), ids=factory.EVERY)
@pytest.mark.parametrize("width", [60, 80, 160])
def test_every_kind_of_run_fits_the_terminal(make: Callable[[], Run], width: int) -> None:
    run = make()
    for what in (terminal.summary(run), terminal.diagnosis_table(run.diagnosis)):
        lines = show(what, width).splitlines()
        assert lines
        assert max(len(line) for line in lines) <= width


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(run=factory.runs())
def test_any_run_can_be_shown(run: Run) -> None:
    show(terminal.summary(run))
    show(terminal.diagnosis_table(run.diagnosis))


def test_the_summary_says_what_was_gained_and_at_what_price() -> None:
    text = show(terminal.summary(factory.full_run()), 160)
    assert text.startswith("models.py:efficientnet_lite0: 6.60× faster\n")
    (best,) = [line for line in text.splitlines() if line.startswith("★")]
    assert best.split()[:4] == ["★5", "onnxruntime_int8", "6.60×", "2.61"]
    for expected in (
        "6.43–6.76×",
        "−0.2 to 0.6 pt",
        "What limits it now",
        "Would be wasted",
        "SIGSEGV",
        "the CPU converts",
    ):
        assert expected in text
    frontier = [line.split()[0] for line in text[text.index("\nfrontier") :].splitlines()[3:] if line.strip()]
    assert [f for f in frontier if f.lstrip("★").isdigit()][:4] == ["0", "2", "3", "★5"], "worst to best"


def test_only_so_many_refusals_are_printed() -> None:
    refusal = factory.refusals()[0]
    text = show(terminal.summary(factory.full_run(refused=(refusal,) * 11)))
    assert "and 3 more, in the report" in text


def test_markup_and_escapes_of_others_are_not_obeyed() -> None:
    run = factory.full_run(name="[bold red]x[/]\x1b[2J\u202e", account=("[blink]y",))
    text = show(terminal.summary(run))
    assert "[bold red]x[/]" in text
    assert "[blink]y" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = show(terminal.summary(factory.full_run()), force_terminal=True)
    assert "\x1b[31m" in coloured, "failures are red"
    monkeypatch.setenv("NO_COLOR", "1")
    plain = show(terminal.summary(factory.full_run()), force_terminal=True)
    assert "\x1b[31m" not in plain


def test_a_diagnosis_shows_terms_bounds_and_what_was_not_counted() -> None:
    text = show(terminal.diagnosis_table(factory.diagnosis()), 140)
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "9.46 ms" in rows["compute"]
    assert "55 %" in rows["compute"]
    assert "█" * 11 in rows["compute"]
    assert "17.2 ms" in rows["total"]
    assert "custom::resize" in flat(text).split("Not counted: ")[1]
    assert flat(text).index("int8 convolutions") < flat(text).index("keep freed memory") < flat(text).index("4-bit")


@pytest.mark.parametrize(("share", "bar"), [(0.0, ""), (-0.3, ""), (0.5, "█" * 10), (1.4, "█" * 20), (1 / 160, "▏")])
def test_bars(share: float, bar: str) -> None:
    assert terminal._bar(share) == bar


@dataclass
class Fake:
    name: str
    axis: Axis
    attacks: frozenset[Term] = frozenset({Term.COMPUTE, Term.MEMORY})
    kinds: frozenset[Kind] = frozenset({Kind.INFERENCE})
    needs: frozenset[str] = frozenset()
    cites: str = "a paper"


def test_levers_are_listed_in_the_order_data_algorithm_machine() -> None:
    levers = [Fake("threads", Axis.MACHINE), Fake("b", Axis.ALGORITHM), Fake("a", Axis.ALGORITHM), Fake("z", Axis.DATA)]
    lines = show(terminal.lever_table(levers), 120).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["z", "a", "b", "threads"]
    assert "compute, memory" in lines[2]
    assert "nothing" in lines[2]
