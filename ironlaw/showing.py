"""Records as what commands print: tables and words for people, JSON for programs; and as notebooks show them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ironlaw import linting
from ironlaw.comparing import Comparison
from ironlaw.linting import Mistake
from ironlaw.plan.space import Plan
from ironlaw.records import Diagnosis, Machine, Refusal, Run, drawn_by, to_data
from ironlaw.store import home_folder, write_atomically

NOTEBOOK_COLUMNS = 110


def machine_text(found: Machine) -> Any:
    """The ceilings as a table for the terminal."""
    from ironlaw.machine import roofline

    return roofline.text(found)


def draw_machine(found: Machine, path: Path) -> None:
    """Write the roofline of a machine as SVG."""
    from ironlaw.machine import roofline

    write_atomically(path, roofline.svg(found))


def validation_text(found: dict[str, Any]) -> Any:
    """The answers as a table for the terminal."""
    from ironlaw.validating.account import account

    return account(found)


def data_of(found: Any) -> Any:
    """A record as JSON data."""
    return to_data(found)


def run_json(run: Run) -> dict[str, Any]:
    """The public JSON of a run (``ironlaw.run/1``)."""
    from ironlaw.report.data import run_data

    return run_data(run)


def plan_data(diagnosis: Diagnosis, plans: list[Plan], refusals: tuple[Refusal, ...]) -> dict[str, Any]:
    """The JSON of ``tune --plan-only``."""
    return {
        "schema": "ironlaw.plan/1",
        "diagnosis": to_data(diagnosis),
        "plans": [{"label": p.label, "predicted": to_data(p.predicted), "cost_s": p.cost_s} for p in plans],
        "refused": to_data(refusals),
    }


def lint_data(path: str | Path, found: tuple[Mistake, ...]) -> dict[str, Any]:
    """The JSON of ``lint`` (``ironlaw.lint/1``)."""
    return linting.as_data(path, found)


def lint_text(path: str | Path, found: tuple[Mistake, ...]) -> str:
    return linting.in_words(path, found)


def where_text(run: Run) -> str:
    """Where the files of a run lie and how to run its best point."""
    folder = home_folder() / "runs" / run.id
    artefact = run.best_trial.artefact
    lines = [f"report    {folder / 'report.html'}", f"artefact  {folder / 'artefact'}"]
    return "\n".join(lines + [f"    {line}" for line in (artefact.snippet.splitlines() if artefact else [])])


def comparison_data(found: Comparison) -> dict[str, Any]:
    return {"schema": "ironlaw.comparison/1", **to_data(found)}


def comparison_text(found: Comparison) -> str:
    gain, quality = found.after.gain, found.after.quality
    speed = f"{gain.median:.3f}x [{gain.low:.3f}, {gain.high:.3f}] of A's speed" if gain else "not measured"
    said = f"; {quality.metric} {quality.value} against {quality.baseline}" if quality else ""
    return f"B: {speed}{said}\n{'REGRESSION: ' if found.regression else ''}{found.reason}"


# ---------------------------------------------------------------- in a notebook


def _run_html(run: Run) -> str:
    from ironlaw.report import terminal

    return _html(terminal.summary(run), terminal.frontier_table(run))


def _diagnosis_html(found: Diagnosis) -> str:
    from ironlaw.report import terminal

    return _html(terminal.diagnosis_table(found))


def _machine_html(found: Machine) -> str:
    from ironlaw.machine import roofline

    return roofline.svg(found) + _html(machine_text(found))


def _html(*parts: Any) -> str:
    """What the terminal shows, in the notebook's own colours; everything in it is escaped."""
    from rich.console import Console

    console = Console(record=True, width=NOTEBOOK_COLUMNS, file=io.StringIO())
    for part in parts:
        console.print(part, markup=False, highlight=False) if isinstance(part, str) else console.print(part)
    form = '<pre style="overflow-x:auto;line-height:1.25">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=form)


drawn_by(Run, _run_html)
drawn_by(Diagnosis, _diagnosis_html)
drawn_by(Machine, _machine_html)
drawn_by(Comparison, lambda found: _html(comparison_text(found)))
