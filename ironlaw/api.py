"""The composition root: every command as a function. :mod:`ironlaw.cli` only parses and prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Unpack

from ironlaw import hardware, linting, perturbing, quantities, registry
from ironlaw.bench import Limits
from ironlaw.carrying import carried
from ironlaw.comparing import Comparison
from ironlaw.contracts import Lever
from ironlaw.forecasts import export_predictions, import_predictions, prediction_scores
from ironlaw.goals import Wanted, goal_of
from ironlaw.linting import Mistake
from ironlaw.listings import compute_law, law_catalogue, lever_catalogue, list_runs, prune
from ironlaw.plan.space import Plan
from ironlaw.recording import keep_score, record
from ironlaw.records import (
    Diagnosis,
    Elsewhere,
    Goal,
    Machine,
    Objective,
    Outcome,
    Refusal,
    Run,
    UserError,
)
from ironlaw.session import Session, allowed_cpus, opened
from ironlaw.showing import (
    comparison_data,
    comparison_text,
    data_of,
    draw_machine,
    lint_data,
    lint_text,
    machine_text,
    plan_data,
    run_json,
    validation_text,
    where_text,
)
from ironlaw.store import Store, clear_errors, home_folder
from ironlaw.stored import deploy, load_run, report

Talk = Callable[[str], None]
CALIBRATED = ("torch", "onnxruntime", "openvino")


def machine(*, home: Path | None = None, fresh: bool = False, quick: bool = False, talk: Talk | None = None) -> Machine:
    """The measured ceilings of this host: from the store when they were measured in this environment.

    ``quick`` is content with fewer repetitions (under 25 s on two cores, else under 60 s); a full measurement,
    once made, serves both. Raises UserError when the store cannot be written.
    """
    from ironlaw.machine import cached, measure
    from ironlaw.machine.environment import environment
    from ironlaw.measure.lock import machine_lock

    folder, say = (home or home_folder()) / "machines", talk or _silent
    known = None if fresh else cached.load(folder, environment().identity.digest, full=not quick, talk=say)
    if known is not None:
        return dataclasses.replace(known, environment=environment())
    say("measure this machine's ceilings (kept for this environment)")
    targets = [name for name in CALIBRATED if not registry.unmet(registry.target(name).needs)]
    with machine_lock(say):
        found = measure(threads=None, quick=quick, progress=lambda line: say(f"  {line}"), targets=targets)
    with clear_errors(folder):
        return cached.save(folder, found)


def tune(
    workload: Any,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    time_limit: str | float = "10min",
    trial_limit: str | float = "5min",
    memory_limit: str | int | None = None,
    data: str | Path | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    talk: Talk | None = None,
    **wanted: Unpack[Wanted],
) -> Run:
    """The loop on one workload; stores the run, packages its best point and writes its report.

    Args:
        workload: an :class:`ironlaw.Inference` or :class:`ironlaw.Training`, or a spec: ``file.py:name``,
            ``model.onnx``, ``demo:NAME``.
        include, exclude: names of levers.
        time_limit: of the whole run; finished trials are kept, the same call goes on.
        trial_limit, memory_limit: of one step of one trial and of one worker: a hang or a leak ends that trial only.
        data: inputs by the graph's names, labels as ``y`` (``.npz``), for ``model.onnx``.
        home: the store; default ``$IRONLAW_HOME`` or ``.ironlaw`` here.
        fresh: measure anew what is stored.
        talk: gets a line of progress.

    Keywords of the goal (:class:`ironlaw.goals.Wanted`):
        objective: latency (of a model, where none is named), throughput (of a training job: samples a second), size,
            memory or energy.
        max_drop: quality that may be given: ``1pt`` is 0.01 of the metric, ``1%`` a hundredth of the baseline's.
        min_quality: a floor under the metric itself (15 for an SQNR of 15 dB).
        p99: latency limit at the 99th percentile; a run without a point that keeps it is not ``satisfied``.
        rate: requests a second that arrive at random (``200/s``): latency is then what a request sees from its arrival
            to its answer, and p99 is of that. Of the objective latency only.
        max_size, max_memory: limits on what ships and on the peak resident memory.
        allow_modelled: energy may come from counted events at published energies where there are no counters.
        cores: of the host it will run on; default: all that this process may use.
        target: only points on this runtime may win.

    Raises:
        UserError: the input is wrong, or the store cannot be written.
    """
    goal_of(**wanted)  # what is wrong with it is told before anything is loaded
    limits = Limits(
        trial_s=quantities.seconds(trial_limit, "--trial-limit"),
        memory_bytes=None if memory_limit is None else quantities.size_bytes(memory_limit, "--memory-limit"),
    )
    levers = _chosen(include, exclude)
    deadline = quantities.seconds(time_limit, "--time-limit")
    say = talk or _silent
    with _opened(workload, wanted, limits, data=data, home=home, fresh=fresh, talk=say) as session:
        loop = session.loop(levers, deadline, say)
        loop.run()
        run = record(session, loop, session.goal)
        session.store.save_run(run, finished=True)
        for subject in loop.subjects.values():
            keep_score(session, loop, subject.key)
    _ship(run, Path(home) if home else home_folder(), say)
    return run


def plan(
    workload: Any,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    data: str | Path | None = None,
    home: str | Path | None = None,
    fresh: bool = False,
    talk: Talk | None = None,
    **wanted: Unpack[Wanted],
) -> tuple[Diagnosis, list[Plan], tuple[Refusal, ...]]:
    """What :func:`tune` would try first under the same goal, ranked, and what it refuses: nothing is applied."""
    goal_of(**wanted)
    levers, say = _chosen(include, exclude), talk or _silent
    with _opened(workload, wanted, Limits(), data=data, home=home, fresh=fresh, talk=say) as session:
        loop = session.loop(levers, 600.0, say)
        loop.measure_baseline()
        ranked = loop.search.next_batch(len(loop.search.open))
        assert loop.diagnosis is not None
        return loop.diagnosis, ranked, loop.refusals()


def _opened(
    workload: Any,
    wanted: Wanted,
    limits: Limits,
    *,
    data: str | Path | None,
    home: str | Path | None,
    fresh: bool,
    talk: Talk,
) -> Session:
    """The session of a model or of a training job, whose usual objectives differ."""
    from ironlaw import training_session
    from ironlaw.workloads.load import given
    from ironlaw.workloads.training import Training

    Store(Path(home) if home else home_folder()).close()  # what is wrong with it is told before a slow load
    subject = given(workload, data=data)
    if not isinstance(subject, Training):
        return opened(subject, goal_of(**wanted), limits, know_machine=machine, home=home, fresh=fresh, talk=talk)
    asked = wanted.copy()
    asked["objective"] = wanted.get("objective") or Objective.THROUGHPUT
    goal = goal_of(**asked)
    return training_session.opened(subject, goal, limits, know_machine=machine, home=home, fresh=fresh, talk=talk)


def diagnose(
    workload: Any,
    *,
    data: str | Path | None = None,
    home: str | Path | None = None,
    cores: int | None = None,
    on: Iterable[str] = (),
    perturb: bool | Iterable[str] | None = None,
    fresh: bool = False,
    talk: Talk | None = None,
) -> Diagnosis:
    """Where the time of the workload goes as it is: terms, operators, what would work and what is wasted.

    ``on`` names published machines (:mod:`ironlaw.hardware`) that the ledger is carried to (``elsewhere``). ``perturb``
    is which causes are confirmed by perturbation (names of :data:`ironlaw.perturbing.NAMES`, True for all, False for
    none); by default those that can tell two close terms apart. A training job is measured anew in every call, always
    with cached input as its perturbation, and with no other.

    Raises:
        UserError: the input is wrong, a machine or perturbation is not known, or the store cannot be written.
    """
    from ironlaw.workloads.load import given
    from ironlaw.workloads.training import Training

    causes = perturbing.chosen(perturb)
    machines = [hardware.machine(name).name for name in on]
    goal, say = Goal(cores=cores), talk or _silent
    subject = given(workload, data=data)
    if isinstance(subject, Training):
        found = _diagnose_training(subject, cores, Path(home) if home else home_folder(), say)
        return dataclasses.replace(found, elsewhere=tuple(elsewhere(found, name) for name in machines))
    with opened(subject, goal, Limits(), know_machine=machine, data=data, home=home, fresh=fresh, talk=say) as session:
        loop = session.loop({}, 600.0, say)
        loop.measure_baseline()
        assert loop.diagnosis is not None
        found = perturbing.perturbed(
            session.bench, session.bench.baseline, loop.diagnosis, session.machine, causes, say
        )
        return carried(found, machines, session.bench, say)


def _diagnose_training(job: Any, cores: int | None, root: Path, talk: Talk) -> Diagnosis:
    from ironlaw.training_diagnosis import examined
    from ironlaw.workloads.job import check_training

    check_training(job)
    host = machine(home=root, quick=True, talk=talk)
    with Store(root) as store, clear_errors(root):
        return examined(job, host, allowed_cpus(cores), store.folder("training"), talk).diagnosis


def elsewhere(diagnosis: Diagnosis, name: str) -> Elsewhere:
    """A diagnosis carried to a published machine without counting anew. Raises UserError for an unknown name."""
    from ironlaw.diagnose.elsewhere import elsewhere as placed

    return placed(diagnosis, hardware.machine(name))


def compare(
    before: Any,
    after: Any,
    *,
    data: str | Path | None = None,
    max_drop: str | float = "1pt",
    home: str | Path | None = None,
    talk: Talk | None = None,
) -> Comparison:
    """B against A on A's examples, paired in speed and quality.

    A is a workload; B another, a folder that :func:`deploy` wrote, or a run of this store (its best point).

    A regression is B slower beyond the smallest claimable change, or a drop in quality not within the budget.
    """
    from ironlaw.comparing import paired_trials

    goal = Goal(max_drop=quantities.budget(max_drop, "--max-drop"))
    say = talk or _silent
    with opened(before, goal, Limits(), know_machine=machine, data=data, home=home, fresh=False, talk=say) as session:
        one, two = paired_trials(session, after, data, goal, say)
    slower = two.gain is not None and two.gain.settled and two.gain.high < 1.0 / max(1.0, two.gain.floor)
    if two.outcome.failed or two.outcome in (Outcome.OVER_BUDGET, Outcome.NOT_FINITE):
        return Comparison(before=one, after=two, regression=True, reason=two.reason)
    return Comparison(before=one, after=two, regression=slower, reason="slower" if slower else two.reason)


def _ship(run: Run, root: Path, talk: Talk) -> None:
    """Package the best point and write the report; a run is kept even when its package fails."""
    talk("package the best point and check it in a fresh process")
    deploy(run, home=root)
    report(run, home=root)


def _chosen(include: Iterable[str], exclude: Iterable[str]) -> dict[str, Lever]:
    known = registry.levers()
    wanted, unwanted = set(include), set(exclude)
    if unknown := (wanted | unwanted) - set(known):
        raise UserError(f"lever {', '.join(sorted(unknown))}", "is not known", f"Use: {', '.join(known)}.")
    return {n: lever for n, lever in known.items() if (not wanted or n in wanted) and n not in unwanted}


def _silent(_: str) -> None:
    return


def validations() -> list[dict[str, Any]]:
    """What ``validate`` can put to the test."""
    from ironlaw.validating.cases import all_cases

    count = len(all_cases())
    return [{"name": "cases", "what": f"{count} situations that tools got wrong in public, each with a cured twin"}]


def validate(
    what: str, *, only: Iterable[str] = (), home: str | Path | None = None, talk: Talk | None = None
) -> dict[str, Any]:
    """Put ironlaw to a test and count: ``cases`` gives ``{schema, live, replayed, cases}``.

    Raises:
        UserError: there is no such test, or no case of that name in ``only``.
    """
    from ironlaw.validating import running

    if what not in [one["name"] for one in validations()]:
        raise UserError(f"validate {what}", "is not known", "Use: cases.")
    say = talk or _silent
    root = Path(home) if home else home_folder()
    return running.data(running.run(lambda: machine(home=root, quick=True, talk=say), names=only, talk=say))


def stored_machine(home: Path | None = None) -> Machine:
    """The ceilings that are stored for this environment. Raises UserError (exit 4) when there are none."""
    from ironlaw.machine import cached
    from ironlaw.machine.environment import environment

    known = cached.load((home or home_folder()) / "machines", environment().identity.digest, stale=True)
    if known is None:
        raise UserError("machine", "was not measured in this environment", "Run `ironlaw machine` first.", exit_code=4)
    return known


def lint(path: str | Path) -> tuple[Mistake, ...]:
    """Mistakes of timing in a benchmark script, from its syntax; nothing of it is run.

    Raises UserError when it cannot be read or is not Python.
    """
    return linting.lint_file(path)


__all__ = [
    "Comparison",
    "Talk",
    "compare",
    "comparison_data",
    "comparison_text",
    "compute_law",
    "data_of",
    "deploy",
    "diagnose",
    "draw_machine",
    "elsewhere",
    "export_predictions",
    "import_predictions",
    "law_catalogue",
    "lever_catalogue",
    "lint",
    "lint_data",
    "lint_text",
    "list_runs",
    "load_run",
    "machine",
    "machine_text",
    "plan",
    "plan_data",
    "prediction_scores",
    "prune",
    "report",
    "run_json",
    "stored_machine",
    "tune",
    "validate",
    "validation_text",
    "validations",
    "where_text",
]
