"""A diagnosis carried to a published machine, for the command line: the verdict, the terms, the operators there."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ironlaw.records import Elsewhere, OpElsewhere, Term
from ironlaw.report import units

SHOWN = 8


def elsewhere_table(found: Elsewhere) -> RenderableType:
    """What would dominate there, whether it fits and would help, with the source of each number."""
    parts: list[RenderableType] = [
        Text(units.plain(f"on {found.title} ({found.name}): {found.advice}"), style="bold"),
        Text(),
        _terms(found),
        Text(),
        _operators(found),
        Text(),
        _line("what dominates there", found.why),
        _line("fits", {True: "yes", False: "no", None: "undetermined"}[found.fits] + f": {found.fit}"),
        _line("time there at its peaks", _bounds(found)),
    ]
    parts += [_line("note", note) for note in found.notes]
    parts += [Text(units.plain(f"source: {source}"), style="dim") for source in found.sources]
    return Group(*parts)


def _terms(found: Elsewhere) -> Table:
    table = _table(("term", "least", "most", "evidence"), right=(1, 2))
    for one in found.terms:
        table.add_row(
            Text(str(one.term), style="bold" if one.term == found.dominant else ""),
            Text(units.seconds(one.seconds.low)),
            Text(units.seconds(one.seconds.high)),
            Text(units.plain(one.evidence)),
        )
    return table


def _operators(found: Elsewhere) -> Table:
    table = _table(("operator", "dtype", "here", "arithmetic there", "traffic there", "side"), right=(2, 3))
    for op in sorted(found.ops, key=_most, reverse=True)[:SHOWN]:
        table.add_row(
            Text(units.plain(f"{op.name} {op.shape}")),
            Text(units.plain(op.dtype)),
            Text("not timed" if op.here_s is None else units.seconds(op.here_s)),
            Text("no peak" if op.arithmetic_s is None else units.seconds(op.arithmetic_s)),
            Text("no bandwidth" if op.traffic_s is None else units.seconds_range(op.traffic_s)),
            Text(_side(op.side)),
        )
    return table


def _most(op: OpElsewhere) -> float:
    return max(op.arithmetic_s or 0.0, op.traffic_s.high if op.traffic_s else 0.0)


def _side(side: Term | None) -> str:
    return "undetermined" if side is None else str(side)


def _bounds(found: Elsewhere) -> str:
    if found.overlapped_bound_s is None or found.serial_bound_s is None:
        return "no bound from above: see the notes"
    overlapped, serial = (units.seconds_range(one) for one in (found.overlapped_bound_s, found.serial_bound_s))
    return f"{overlapped} when traffic and arithmetic overlap, {serial} when they do not"


def _line(what: str, text: str) -> Text:
    return Text.assemble((f"{what}: ", "bold"), units.plain(text))


def _table(columns: tuple[str, ...], right: tuple[int, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index in right else "left", overflow="fold", header_style="dim")
    return table
