"""What every command prints with: errors as one message, talk on stderr, results as text or JSON on stdout."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer


class errors:  # noqa: N801 - reads as a statement: ``with errors(debug):``
    """Turn errors of the user into one message and the exit code that it carries; interrupted is 130."""

    def __init__(self, debug: bool) -> None:
        self._debug = debug

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        from ironlaw.records import UserError

        if isinstance(error, KeyboardInterrupt):
            typer.echo("interrupted: what was finished is kept, the same command goes on", err=True)
            raise typer.Exit(130)
        if not isinstance(error, UserError):
            return
        if self._debug:
            traceback.print_exception(error, file=sys.stderr)
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code)


def talk(quiet: bool) -> Callable[[str], None] | None:
    return None if quiet else lambda line: typer.echo(line, err=True)


def emit(json_file: str | None, data: Callable[[], Any], shown: Callable[[], Any]) -> None:
    """Print for people, or JSON: into a file beside the print, or alone on standard output for ``-``."""
    if json_file == "-":
        typer.echo(json.dumps(data(), indent=2, allow_nan=False))
        return
    if json_file is not None:
        from ironlaw.store import write_atomically

        write_atomically(Path(json_file), json.dumps(data(), indent=2, allow_nan=False) + "\n")
    show(shown())


def show(value: Any) -> None:
    from rich.console import Console

    console = Console(soft_wrap=isinstance(value, str))
    console.print(value, markup=False, highlight=False) if isinstance(value, str) else console.print(value)
