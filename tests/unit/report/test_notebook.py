"""Records show themselves in a notebook as the terminal shows them, and hostile text stays text."""

from __future__ import annotations

import dataclasses

import factory

from ironlaw import showing
from ironlaw.comparing import Comparison
from ironlaw.records import Interval, Shown


def test_a_run_shows_its_summary_and_its_frontier() -> None:
    html = factory.full_run()._repr_html_()
    assert html is not None
    for words in ("6.60×", "What limited it", "frontier", "<pre"):
        assert words in html


def test_a_diagnosis_a_machine_and_a_comparison_show_themselves() -> None:
    run = factory.full_run()
    assert "compute" in str(factory.diagnosis()._repr_html_())
    assert "<svg" in str(run.machine._repr_html_())
    said = Comparison(before=run.baseline, after=run.best_trial, regression=True, reason="slower")._repr_html_()
    assert "REGRESSION: slower" in str(said)


def test_hostile_text_stays_text() -> None:
    html = str(factory.hostile_run()._repr_html_())
    assert "<script" not in html
    assert "<img" not in html


def test_what_nobody_can_draw_falls_back_to_its_words() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Other(Shown):
        seconds: Interval

    assert Other(Interval(low=1.0, value=2.0, high=3.0))._repr_html_() is None
    assert showing.NOTEBOOK_COLUMNS > 80
