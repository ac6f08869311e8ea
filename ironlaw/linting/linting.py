"""The rules in order, on every region of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ironlaw.linting import contents, models, samples
from ironlaw.linting.history import loads, work
from ironlaw.linting.regions import Region, regions
from ironlaw.linting.rules import RULES, Mistake
from ironlaw.linting.source import Source
from ironlaw.records import UserError

Check = Callable[[Source, Region], Iterator[Mistake]]
_OF_CALLS: tuple[Check, ...] = (
    contents.warm_up,
    samples.counts,
    contents.synchronisation,
    contents.contents,
    models.modes,
)


def _checks(source: Source, region: Region) -> tuple[Check, ...]:
    """Every rule; for a region that only loads something, the clock's alone."""
    return (contents.clock,) if loads(work(source, region.body)) else (contents.clock, *_OF_CALLS)


def lint_text(text: str) -> tuple[Mistake, ...]:
    """Mistakes of timing in a script, by line; none where nothing is timed.

    Raises ``SyntaxError`` where the text is not Python, ``ValueError`` where it holds a zero byte.
    """
    source = Source(text)
    found = (one for region in regions(source) for check in _checks(source, region) for one in check(source, region))
    unique, order = {(one.rule, one.line): one for one in found}, list(RULES)
    return tuple(sorted(unique.values(), key=lambda one: (one.line, order.index(one.rule))))


def lint_file(path: str | Path) -> tuple[Mistake, ...]:
    """Mistakes of timing in a file. Nothing of it is run.

    Raises ``UserError`` when it cannot be read or is not Python.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(str(path), f"cannot be read ({error})", "Give a Python file in UTF-8.") from error
    try:
        return lint_text(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UserError(str(path), f"is not Python{where} ({error})", "Give a script that Python can read.") from error
