"""Silent killers in the terminal and on the page: with their cure, escaped, and nothing where there is none."""

from __future__ import annotations

import dataclasses
import io
import re

import factory
import pytest
from rich.console import Console

from ironlaw.records import Finding, Run, Term
from ironlaw.report import html, terminal

STORM = Finding(
    kind="page_faults",
    attacks=Term.PAGING,
    share=0.41,
    evidence="75,268 page faults a call",
    remedy="lever allocator keeps memory",
)
UNKNOWN = Finding(kind="oversubscription", attacks=Term.SYNC, share=None, evidence="8 on 2 cores", remedy="2 threads")


def with_killers(*found: Finding) -> Run:
    run = factory.full_run()
    return dataclasses.replace(run, diagnosis=dataclasses.replace(run.diagnosis, findings=found))


def in_terminal(run: Run, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(terminal.diagnosis_table(run.diagnosis))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 160])
def test_the_terminal_lists_them_with_their_cure(width: int) -> None:
    text = in_terminal(with_killers(STORM, UNKNOWN), width)
    assert max(len(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    for expected in (
        "silent killers",
        "page faults",
        "41 %",
        "75,268 page faults a call",
        "-> lever allocator",
        "unknown",
    ):
        assert expected in flat


def test_the_page_lists_them_where_they_were_found() -> None:
    page = html.render(with_killers(STORM, UNKNOWN))
    assert page.count("<h3>Silent killers, before</h3>") == 1
    assert "<h3>Silent killers, after</h3>" not in page
    table = page.split("<h3>Silent killers, before</h3>")[1].split("</table>")[0]
    rows = re.findall(r'<th scope="row">(.*?)</th>', table)
    assert rows == ["page faults", "oversubscription"]
    assert "lever allocator keeps memory" in table


def test_nothing_is_shown_where_nothing_was_found() -> None:
    assert "silent killers" not in in_terminal(factory.full_run(), 160)
    assert "Silent killers" not in html.render(factory.full_run())


def test_names_of_operators_stay_text() -> None:
    bad = dataclasses.replace(STORM, evidence=factory.HOSTILE, remedy=factory.HOSTILE)
    page = html.render(with_killers(bad))
    table = page.split("<h3>Silent killers, before</h3>")[1].split("</table>")[0]
    assert "<script" not in table
    assert "<img" not in table
    in_terminal(with_killers(bad), 80)
