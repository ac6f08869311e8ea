"""The commands that measure: ``machine``, ``diagnose``, ``tune``, ``compare``.

Their options are the keywords of :mod:`ironlaw.api`, as text: what they mean is decided there, once for both doors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ironlaw.cli.options import Data, Debug, Fresh, Json, Names, Quiet, Workload
from ironlaw.cli.printing import emit, errors, talk
from ironlaw.cli.tables import plan_table, run_text


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

    with errors(debug):
        found = api.stored_machine() if show else api.machine(fresh=fresh, quick=quick, talk=talk(quiet))
        if svg is not None:
            api.draw_machine(found, svg)
        emit(json_file, lambda: api.data_of(found), lambda: api.machine_text(found))


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
    with errors(debug):
        found = api.diagnose(
            workload, data=data, cores=cores, on=on or (), perturb=names or perturb, fresh=fresh, talk=talk(quiet)
        )
        emit(json_file, lambda: api.data_of(found), lambda: diagnosis_table(found))


def tune(
    workload: Workload,
    objective: Annotated[
        str | None,
        typer.Option(help="latency (of models, the default), throughput (of training jobs), size, memory or energy"),
    ] = None,
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
        "talk": talk(quiet),
    }  # fmt: skip
    with errors(debug):
        if plan_only:
            diagnosis, plans, refusals = api.plan(workload, **common)
            emit(json_file, lambda: api.plan_data(diagnosis, plans, refusals), lambda: plan_table(plans, refusals))
            return
        run = api.tune(
            workload,
            time_limit=time_limit,
            trial_limit=trial_limit,
            memory_limit=memory_limit,
            **common,
        )
        emit(json_file, lambda: api.run_json(run), lambda: run_text(run))
        if not run.satisfied:
            raise typer.Exit(3)


def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="a workload")],
    after: Annotated[
        str,
        typer.Argument(metavar="B", help="a workload, a folder of `deploy`, or a run: compared with A on A's examples"),
    ],
    data: Data = None,
    max_drop: Annotated[str, typer.Option(help="quality that may be given: 1pt or 1%")] = "1pt",
    json_file: Json = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare two models, paired, in speed and quality; exit 1 on a regression: for CI."""
    from ironlaw import api

    with errors(debug):
        found = api.compare(before, after, data=data, max_drop=max_drop, talk=talk(quiet))
        emit(json_file, lambda: api.comparison_data(found), lambda: api.comparison_text(found))
    if found.regression:
        raise typer.Exit(1)
