"""The commands that need no model: ``levers``, ``lint``, ``laws``, ``validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ironlaw.cli.options import Debug, Json, Quiet
from ironlaw.cli.printing import emit, errors, talk
from ironlaw.cli.tables import table


def levers(json_file: Json = None) -> None:
    """List every lever: what it attacks, what it changes, what it needs."""
    from ironlaw import api

    listed = api.lever_catalogue()
    emit(json_file, lambda: {"levers": listed}, lambda: table("levers", listed))


def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a benchmark script; it is read, not run")],
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """Name timing mistakes in a benchmark script; exit 1 when there are any."""
    from ironlaw import api

    with errors(debug):
        found = api.lint(file)
        emit(json_file, lambda: api.lint_data(file, found), lambda: api.lint_text(file, found))
    if found:
        raise typer.Exit(1)


def laws(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="a law; without it all are listed")] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """List the laws, or compute one: ironlaw laws amdahl --p 0.95 --s 100."""
    from ironlaw import api

    with errors(debug):
        if name is None:
            listed = api.law_catalogue()
            emit(json_file, lambda: {"laws": listed}, lambda: table("laws", listed))
            return
        answer = api.compute_law(name, context.args)
        text = f"{answer['law']} = {answer['result']} {answer['unit']}\nvalid while {answer['valid_while']}"
        emit(json_file, lambda: answer, lambda: f"{text}\nsource: {answer['source']}")


def validate(
    what: Annotated[str | None, typer.Argument(help="what to put to the test; without it all are listed")] = None,
    only: Annotated[list[str] | None, typer.Option(help="name of a case; may be repeated")] = None,
    json_file: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Put ironlaw to the test: ironlaw validate cases asks it what other tools got wrong in public."""
    from ironlaw import api

    with errors(debug):
        if what is None:
            listed = api.validations()
            emit(json_file, lambda: {"validations": listed}, lambda: table("validations", listed))
            return
        found = api.validate(what, only=only or (), talk=talk(quiet))
        emit(json_file, lambda: found, lambda: api.validation_text(found))
