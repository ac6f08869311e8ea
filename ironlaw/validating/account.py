"""The answers for people: every case with what was said, then how many were right, and the misses in full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_STYLES = {"right": "green", "undetermined": "dim", "wrong": "bold red"}


def account(data: dict[str, Any]) -> RenderableType:
    """From the data of :func:`ironlaw.validating.running.data`."""
    misses = [row for row in data["cases"] if row["outcome"] != "right"]
    parts: list[RenderableType] = [_table(data["cases"]), Text()]
    parts += [_miss(row) for row in misses]
    parts.append(Text(f"live: {_line(data['live'])}", style="bold"))
    if data["replayed"]["of"]:
        parts.append(Text(f"replayed on recorded ledgers: {_line(data['replayed'])}", style="bold"))
    return Group(*parts)


def _line(count: dict[str, int]) -> str:
    return f"diagnosed {count['right']} of {count['of']}; {count['undetermined']} undetermined, {count['wrong']} wrong"


def _table(rows: Iterable[dict[str, Any]]) -> Table:
    table = Table(title="cases", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("case", "met in", "outcome", "what is said"):
        table.add_column(name, overflow="fold", header_style="dim")
    for row in rows:
        name = f"{row['name']}{' (replayed)' if row['replayed'] else ''}"
        outcome = Text(row["outcome"], style=_STYLES[row["outcome"]])
        table.add_row(Text(name), Text(row["reference"]), outcome, Text(row["said"]))
    return table


def _miss(row: dict[str, Any]) -> Text:
    return Text(
        f"{row['name']}: {row['outcome']}\n  situation: {row['situation']}\n  due: {row['verdict']}\n"
        f"  said: {row['said']}\n  of its twin ({row['cured']}): {row['cured_said']}\n"
    )
