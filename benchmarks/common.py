"""What all benchmarks share: options, arms and goals, the JSON contract, the table for people.

A benchmark is a function from :class:`Options` to a :class:`Report`. Goals are judged on full runs only: with
``--quick`` every goal is unsettled, and the report says what was left out. Results name their commit (and
whether the tree was clean) and the environment they hold in.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.arithmetic import UNSETTLED, Met, met

SCHEMA = "ironlaw.benchmark/1"
ROOT = Path(__file__).resolve().parent.parent
HOME = Path(".ironlaw") / "benchmarks"
Cell = str | float | int | bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the command line said. ``only`` names cases; empty is all of them."""

    quick: bool
    home: Path
    only: tuple[str, ...] = ()
    time_limit_s: float | None = None
    launches: int | None = None
    talk: Callable[[str], None] = lambda line: None

    def report(self, name: str) -> Report:
        """An empty report of a run with these options."""
        fewer = f"{self.launches} launches were asked for" if self.launches else ""
        notes = [f"each tune had {self.time_limit_s:g} s, by --time-limit"] if self.time_limit_s else []
        left_out = [f"everything but {', '.join(self.only)}: not asked for"] if self.only else []
        return Report(
            name=name, command=self.command(name), quick=self.quick, unjudged=fewer, notes=notes, left_out=left_out
        )

    def command(self, name: str) -> str:
        """What to type to have the same again."""
        parts = ["python", "-m", f"benchmarks.{name}", *(["--quick"] if self.quick else [])]
        parts += [part for case in self.only for part in ("--only", case)]
        parts += [] if self.time_limit_s is None else ["--time-limit", f"{self.time_limit_s:g}s"]
        parts += [] if self.launches is None else ["--launches", str(self.launches)]
        return shlex.join(parts)

    def wants(self, case: str) -> bool:
        return not self.only or case in self.only


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """One goal and how it came out. ``limit`` reads ``>= 0.97`` or ``<= 2``."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    limit: str
    met: Met
    note: str = ""

    def data(self) -> dict[str, Any]:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {("goal" if name == "limit" else name): value for name, value in fields.items()}


@dataclass(kw_only=True, slots=True)
class Report:
    """What one run of a benchmark found. An arm is a row: any names, plain values.

    ``command`` has the same again; ``unjudged`` is why no goal of this run may be judged, "" for a full run.
    """

    name: str
    quick: bool
    command: str = ""
    unjudged: str = ""
    arms: list[dict[str, Cell]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def goal(
        self,
        name: str,
        value: float | None,
        low: float | None = None,
        high: float | None = None,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        within_floor: float = 1.0,
        note: str = "",
    ) -> None:
        """Judge one goal and keep it.

        ``within_floor`` is the smallest change that can be told here (1.02 for 2 %): a ratio whose margin to its
        limit is smaller than that cannot be judged, and what would have failed is unsettled.
        """
        verdict = met(value, low, high, at_least=at_least, at_most=at_most)
        if verdict is False and value is not None and at_least is not None and value * within_floor >= at_least:
            verdict, note = UNSETTLED, note or f"the margin is below the floor of {within_floor:.3f}x"
        if self.quick or self.unjudged:
            verdict, note = UNSETTLED, self.unjudged or "goals are judged on full runs"
        limit = f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}"
        self.goals.append(Goal(name=name, value=value, low=low, high=high, limit=limit, met=verdict, note=note))

    def data(self) -> dict[str, Any]:
        """The JSON contract ``ironlaw.benchmark/1`` (``benchmarks/result.schema.json``)."""
        from ironlaw.machine.environment import environment
        from ironlaw.records import to_data

        return {
            "schema": SCHEMA,
            "name": self.name,
            "command": self.command or f"python -m benchmarks.{self.name}",
            "commit": commit(),
            "environment": to_data(environment()),
            "quick": self.quick,
            "left_out": self.left_out,
            "arms": self.arms,
            "goals": [goal.data() for goal in self.goals],
            "notes": self.notes,
        }


def commit() -> str:
    """The commit of the tree, with ``-dirty`` where code differs from it; ``unknown`` outside a repository."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "ironlaw", "benchmarks", "pyproject.toml")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("-dirty" if changed else "")


def main(name: str, run: Callable[[Options], Report]) -> None:
    """Parse, run, print the table, write the JSON. Exit code 2 for the user's input, 4 for what is missing."""
    from ironlaw.records import UserError
    from ironlaw.store import write_atomically

    options, target = parse(name, sys.argv[1:])
    start = time.monotonic()
    try:
        report = run(options)
        report.notes.append(f"took {time.monotonic() - start:.0f} s")
        text = json.dumps(report.data(), indent=1, allow_nan=False) + "\n"
        if target == "-":
            print(text, end="")
            return
        show(report)
        if target is not None:
            write_atomically(Path(target), text)
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def parse(name: str, arguments: Sequence[str]) -> tuple[Options, str | None]:
    """(options, where the JSON goes)."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="within a minute; judges no goal")
    parser.add_argument("--json", metavar="FILE", help="write the result here; - for standard output")
    parser.add_argument("--home", type=Path, default=HOME, help=f"folder of the stores (default {HOME}); resumable")
    parser.add_argument("--only", action="append", default=[], metavar="CASE", help="a case by name; may be repeated")
    parser.add_argument("--time-limit", metavar="TIME", help="of each tune, such as 4min")
    parser.add_argument("--launches", type=int, metavar="N", help="of each arm (default: those of a verdict)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    given = parser.parse_args(arguments)
    from ironlaw.quantities import seconds

    limit = None if given.time_limit is None else seconds(given.time_limit, "--time-limit")
    options = Options(
        quick=given.quick,
        home=given.home.absolute(),
        only=tuple(given.only),
        time_limit_s=limit,
        launches=given.launches,
        talk=_silent if given.quiet else _say,
    )
    return options, given.json


def show(report: Report) -> None:
    """Arms and goals as tables on standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=160)
    if report.arms:
        columns = list(dict.fromkeys(name for arm in report.arms for name in arm))
        table = Table(*columns, title=f"{report.name}{' (quick)' if report.quick else ''}", title_justify="left")
        for arm in report.arms:
            table.add_row(*(_cell(arm.get(name)) for name in columns))
        console.print(table)
    goals = Table("goal", "value", "95 %", "limit", "met", "note", title="goals", title_justify="left")
    for goal in report.goals:
        span = "" if goal.low is None else f"{_cell(goal.low)} .. {_cell(goal.high)}"
        words = {True: "yes", False: "NO", "unsettled": "unsettled"}[goal.met]
        goals.add_row(goal.name, _cell(goal.value), span, goal.limit, words, goal.note)
    if report.goals:
        console.print(goals)
    for line in [*(f"left out: {what}" for what in report.left_out), *report.notes]:
        console.print(line, highlight=False)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(_: str) -> None:
    return
