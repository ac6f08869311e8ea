"""The commands over what the store holds: ``deploy``, ``report``, ``runs``, ``predictions``. None measures speed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ironlaw.cli.options import Debug, Json, Stored
from ironlaw.cli.printing import emit, errors
from ironlaw.cli.tables import runs_table, table


def deploy(
    run: Stored = "latest",
    to: Annotated[Path | None, typer.Option(help="folder to write")] = None,
    trial: Annotated[str | None, typer.Option(help="another point than the best")] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """Package the chosen point of a run and check it in a fresh process."""
    from ironlaw import api

    with errors(debug):
        folder, manifest = api.deploy(run, trial=trial, to=to)
        text = f"{folder}\n" + "\n".join(f"    {line}" for line in manifest["how_to_load"])
        emit(json_file, lambda: {**manifest, "folder": str(folder)}, lambda: text)


def report(
    run: Stored = "latest",
    to: Annotated[Path | None, typer.Option(help="file to write")] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """Write the HTML report of a stored run (one file, works offline)."""
    from ironlaw import api

    with errors(debug):
        found = api.load_run(run)
        path = api.report(found, to=to)
        emit(json_file, lambda: api.run_json(found), lambda: str(path))


def runs(
    prune: Annotated[int | None, typer.Option(help="delete all but the newest N runs", min=0)] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """List the stored runs, or prune them."""
    from ironlaw import api

    with errors(debug):
        gone = api.prune(prune) if prune is not None else []
        listed = api.list_runs()
        emit(json_file, lambda: {"runs": listed, "pruned": gone}, lambda: runs_table(listed, gone))


def predictions(
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="write them without anything private in it")
    ] = None,
    take: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="another machine's: they widen predictions here")
    ] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """Print how well the tool predicted: error, bias and coverage for each lever; exchange that with other machines."""
    from ironlaw import api

    with errors(debug):
        done: dict[str, int] = {}
        if take is not None:
            done["imported"] = api.import_predictions(take)
        if export is not None:
            done["exported"] = api.export_predictions(export)
        scores = api.prediction_scores()
        said = "\n".join(f"{count} predictions {what}" for what, count in done.items())
        emit(json_file, lambda: {"predictions": scores, **done}, lambda: said or table("predictions", scores))
