"""Tables of the terminal; rich is imported where one is drawn, since ``--help`` draws none."""

from __future__ import annotations

from typing import Any


def run_text(run: Any) -> Any:
    from rich.console import Group

    from ironlaw import api
    from ironlaw.report.terminal import summary

    return Group(summary(run), api.where_text(run))


def plan_table(plans: list[Any], refusals: Any) -> Any:
    rows = [
        {
            "plan": plan.label,
            "predicted": f"{plan.predicted.speedup.value:.2f}x",
            "from": f"{plan.predicted.speedup.low:.2f}",
            "to": f"{plan.predicted.speedup.high:.2f}",
            "because": plan.predicted.basis,
        }
        for plan in plans
    ]
    from rich.console import Group

    return Group(
        table("would be tried, in this order", rows),
        table("refused", [{"lever": r.lever, "reason": r.reason} for r in refusals]),
    )


def runs_table(listed: list[dict[str, Any]], gone: list[str]) -> Any:
    from rich.console import Group

    return Group(table("runs", listed), f"pruned: {', '.join(gone)}" if gone else "")


def table(title: str, rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    if not rows:
        return f"no {title}"
    drawn = Table(title=title, title_justify="left")
    for column in rows[0]:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*(cell(value) for value in row.values()))
    return drawn


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
