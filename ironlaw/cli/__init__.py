"""The command line: parses, calls :mod:`ironlaw.api`, prints. Results on stdout, talk on stderr.

Exit codes: 0 done, 1 a regression (``compare``) or a timing mistake (``lint``), 2 the user's input, 3 no point
satisfies the constraints (the best so far is saved), 4 a prerequisite is missing, 130 interrupted. Everything heavy is
imported inside the commands, so that ``ironlaw --help`` is quick.

working     commands that measure             options     what several commands take
stored      commands over the store           printing    errors, progress, text or JSON
asking      commands that need no model       tables      tables of the terminal
"""

from __future__ import annotations

from typing import Annotated

import typer

from ironlaw.cli import asking, stored, working

app = typer.Typer(
    name="ironlaw",
    help="Make an ML workload faster, smaller, cheaper, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        from ironlaw import __version__

        typer.echo(f"ironlaw {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False,
) -> None:
    """Make an ML workload faster, smaller, cheaper, and prove it."""


for _command in (
    working.machine, working.diagnose, working.tune, working.compare,
    stored.deploy, stored.report, stored.runs, stored.predictions,
    asking.levers, asking.lint,
):  # fmt: skip
    app.command()(_command)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(asking.laws)
app.command()(asking.validate)


def main() -> None:
    app()
