"""The command line: parses, calls :mod:`ironlaw.api`, prints. Results on stdout, talk on stderr.

Exit codes: 0 done, 1 a regression (``compare``) or a timing mistake (``lint``), 2 the user's input, 3 no point
satisfies the constraints (the best so far is saved), 4 a prerequisite is missing. Everything heavy is imported inside
the commands, so that ``ironlaw --help`` is quick.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="ironlaw",
    help="Make an ML workload faster, smaller, cheaper, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Workload = Annotated[str, typer.Argument(metavar="W", help="file.py:name, model.onnx with --data, or demo:NAME")]
Data = Annotated[Path | None, typer.Option(help="inputs by the graph's names, labels as y (.npz), for model.onnx")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="write JSON; - for standard output")]
Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress")]
Fresh = Annotated[bool, typer.Option("--fresh", help="measure anew what is stored")]
Names = Annotated[list[str] | None, typer.Option(help="name of a lever; may be repeated")]


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


@app.command()
def machine(
    show: Annotated[bool, typer.Option("--show", help="print what is stored, measure nothing")] = False,
    fresh: Fresh = False,
    quick: Annotated[bool, typer.Option("--quick", help="fewer repetitions, under 25 s")] = False,
    svg: Annotated[Path | None, typer.Option(help="draw the roofline into this file")] = None,
    json_file: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure this machine's ceilings (cached by environment) and draw its roofline."""
    from ironlaw import api

    with _errors(debug):
        found = api.stored_machine() if show else api.machine(fresh=fresh, quick=quick, talk=_talk(quiet))
        if svg is not None:
            api.draw_machine(found, svg)
        _emit(json_file, lambda: api.data_of(found), lambda: api.machine_text(found))


@app.command()
def diagnose(
    workload: Workload,
    data: Data = None,
    cores: Annotated[int | None, typer.Option(help="of the host it will run on")] = None,
    on: Annotated[
        list[str] | None, typer.Option(help="a published machine to ask the same of; may be repeated")
    ] = None,
    perturb: Annotated[
        bool | None, typer.Option("--perturb/--no-perturb", help="confirm causes by perturbation (default: when close)")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="with --perturb: only these perturbations")
    ] = None,
    fresh: Fresh = False,
    json_file: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Say which term limits a workload, what would work and what would be wasted."""
    from ironlaw import api
    from ironlaw.report.terminal import diagnosis_table

    if names and not perturb:
        raise typer.BadParameter("names of perturbations go with --perturb", param_hint=" ".join(names))
    with _errors(debug):
        found = api.diagnose(
            workload, data=data, cores=cores, on=on or (), perturb=names or perturb, fresh=fresh, talk=_talk(quiet)
        )
        _emit(json_file, lambda: api.data_of(found), lambda: diagnosis_table(found))


@app.command()
def tune(
    workload: Workload,
    objective: Annotated[str, typer.Option(help="latency, throughput, size, memory or energy")] = "latency",
    max_drop: Annotated[str, typer.Option(help="quality that may be given: 1pt or 1%")] = "1pt",
    min_quality: Annotated[float | None, typer.Option(help="floor under the metric itself")] = None,
    p99: Annotated[str | None, typer.Option(help="latency limit, such as 5ms")] = None,
    rate: Annotated[str | None, typer.Option(help="requests a second, at random: latency under arrivals")] = None,
    max_size: Annotated[str | None, typer.Option(help="of what ships, such as 2MB")] = None,
    max_memory: Annotated[str | None, typer.Option(help="peak resident memory, such as 1GB")] = None,
    allow_modelled: Annotated[bool, typer.Option("--allow-modelled", help="energy may be modelled")] = False,
    cores: Annotated[int | None, typer.Option(help="of the host it will run on")] = None,
    target: Annotated[str | None, typer.Option(help="runtime that the winner must run on")] = None,
    include: Names = None,
    exclude: Names = None,
    time_limit: Annotated[str, typer.Option(help="of the whole run")] = "10min",
    trial_limit: Annotated[str, typer.Option(help="of one step of one trial")] = "5min",
    memory_limit: Annotated[str | None, typer.Option(help="of one worker, such as 8GB")] = None,
    data: Data = None,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="print what would be tried, apply nothing")] = False,
    fresh: Fresh = False,
    json_file: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Make a model faster, smaller or leaner within a quality budget, and prove it."""
    from ironlaw import api

    common: dict[str, Any] = {
        "objective": objective, "max_drop": max_drop, "min_quality": min_quality, "p99": p99, "rate": rate,
        "max_size": max_size, "max_memory": max_memory, "allow_modelled": allow_modelled, "cores": cores,
        "target": target, "include": include or (), "exclude": exclude or (), "data": data, "fresh": fresh,
        "talk": _talk(quiet),
    }  # fmt: skip
    with _errors(debug):
        if plan_only:
            diagnosis, plans, refusals = api.plan(workload, **common)
            _emit(json_file, lambda: api.plan_data(diagnosis, plans, refusals), lambda: _plan_table(plans, refusals))
            return
        run = api.tune(
            workload,
            time_limit=time_limit,
            trial_limit=trial_limit,
            memory_limit=memory_limit,
            **common,
        )
        _emit(json_file, lambda: api.run_json(run), lambda: _run_text(run))
        if not run.satisfied:
            raise typer.Exit(3)


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="a workload")],
    after: Annotated[str, typer.Argument(metavar="B", help="a workload, compared with A on A's examples")],
    data: Data = None,
    max_drop: Annotated[str, typer.Option(help="quality that may be given: 1pt or 1%")] = "1pt",
    json_file: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare two models, paired, in speed and quality; exit 1 on a regression: for CI."""
    from ironlaw import api

    with _errors(debug):
        found = api.compare(before, after, data=data, max_drop=max_drop, talk=_talk(quiet))
        _emit(json_file, lambda: api.comparison_data(found), lambda: api.comparison_text(found))
    if found.regression:
        raise typer.Exit(1)


@app.command()
def deploy(
    run: Annotated[str, typer.Argument(metavar="RUN", help="id, unique prefix, or latest")] = "latest",
    to: Annotated[Path | None, typer.Option(help="folder to write")] = None,
    trial: Annotated[str | None, typer.Option(help="another point than the best")] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """Package the chosen point of a run and check it in a fresh process."""
    from ironlaw import api

    with _errors(debug):
        folder, manifest = api.deploy(run, trial=trial, to=to)
        text = f"{folder}\n" + "\n".join(f"    {line}" for line in manifest["how_to_load"])
        _emit(json_file, lambda: {**manifest, "folder": str(folder)}, lambda: text)


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="id, unique prefix, or latest")] = "latest",
    to: Annotated[Path | None, typer.Option(help="file to write")] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """Write the HTML report of a stored run (one file, works offline)."""
    from ironlaw import api

    with _errors(debug):
        found = api.load_run(run)
        path = api.report(found, to=to)
        _emit(json_file, lambda: api.run_json(found), lambda: str(path))


@app.command()
def runs(
    prune: Annotated[int | None, typer.Option(help="delete all but the newest N runs", min=0)] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """List the stored runs, or prune them."""
    from ironlaw import api

    with _errors(debug):
        gone = api.prune(prune) if prune is not None else []
        listed = api.list_runs()
        _emit(json_file, lambda: {"runs": listed, "pruned": gone}, lambda: _runs_table(listed, gone))


@app.command()
def predictions(json_file: Json = None, debug: Debug = False) -> None:
    """Print how well the tool predicted: error, bias and coverage for each lever."""
    from ironlaw import api

    with _errors(debug):
        scores = api.prediction_scores()
        _emit(json_file, lambda: {"predictions": scores}, lambda: _table("predictions", scores))


@app.command()
def levers(json_file: Json = None) -> None:
    """List every lever: what it attacks, what it changes, what it needs."""
    from ironlaw import api

    listed = api.lever_catalogue()
    _emit(json_file, lambda: {"levers": listed}, lambda: _table("levers", listed))


@app.command()
def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a benchmark script; it is read, not run")],
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """Name timing mistakes in a benchmark script; exit 1 when there are any."""
    from ironlaw import api

    with _errors(debug):
        found = api.lint(file)
        _emit(json_file, lambda: api.lint_data(file, found), lambda: api.lint_text(file, found))
    if found:
        raise typer.Exit(1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def laws(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="a law; without it all are listed")] = None,
    json_file: Json = None,
    debug: Debug = False,
) -> None:
    """List the laws, or compute one: ironlaw laws amdahl --p 0.95 --s 100."""
    from ironlaw import api

    with _errors(debug):
        if name is None:
            listed = api.law_catalogue()
            _emit(json_file, lambda: {"laws": listed}, lambda: _table("laws", listed))
            return
        answer = api.compute_law(name, context.args)
        text = f"{answer['law']} = {answer['result']} {answer['unit']}\nvalid while {answer['valid_while']}"
        _emit(json_file, lambda: answer, lambda: f"{text}\nsource: {answer['source']}")


@app.command()
def validate(
    what: Annotated[str | None, typer.Argument(help="what to put to the test; without it all are listed")] = None,
    only: Annotated[list[str] | None, typer.Option(help="name of a case; may be repeated")] = None,
    json_file: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Put ironlaw to the test: ironlaw validate cases asks it what other tools got wrong in public."""
    from ironlaw import api

    with _errors(debug):
        if what is None:
            listed = api.validations()
            _emit(json_file, lambda: {"validations": listed}, lambda: _table("validations", listed))
            return
        found = api.validate(what, only=only or (), talk=_talk(quiet))
        _emit(json_file, lambda: found, lambda: api.validation_text(found))


# ---------------------------------------------------------------- printing


class _errors:  # noqa: N801 - reads as a statement
    """Turn errors of the user into one message and the exit code of DESIGN section 8."""

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


def _talk(quiet: bool) -> Callable[[str], None] | None:
    return None if quiet else lambda line: typer.echo(line, err=True)


def _emit(json_file: str | None, data: Callable[[], Any], shown: Callable[[], Any]) -> None:
    """Print for people, or JSON: into a file beside the print, or alone on standard output for ``-``."""
    if json_file == "-":
        typer.echo(json.dumps(data(), indent=2, allow_nan=False))
        return
    if json_file is not None:
        from ironlaw.store import write_atomically

        write_atomically(Path(json_file), json.dumps(data(), indent=2, allow_nan=False) + "\n")
    _show(shown())


def _show(value: Any) -> None:
    from rich.console import Console

    console = Console(soft_wrap=isinstance(value, str))
    console.print(value, markup=False, highlight=False) if isinstance(value, str) else console.print(value)


def _run_text(run: Any) -> Any:
    from rich.console import Group

    from ironlaw import api
    from ironlaw.report.terminal import summary

    return Group(summary(run), api.where_text(run))


def _plan_table(plans: list[Any], refusals: Any) -> Any:
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
        _table("would be tried, in this order", rows),
        _table("refused", [{"lever": r.lever, "reason": r.reason} for r in refusals]),
    )


def _runs_table(listed: list[dict[str, Any]], gone: list[str]) -> Any:
    from rich.console import Group

    return Group(_table("runs", listed), f"pruned: {', '.join(gone)}" if gone else "")


def _table(title: str, rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    if not rows:
        return f"no {title}"
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
