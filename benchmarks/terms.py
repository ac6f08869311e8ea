"""Do the terms of a diagnosis agree with what perturbations measure, how much stays unexplained, and what does it cost.

On each demo every perturbation is run, whether the verdict needs it or not, and its answer is held against the term
that the diagnosis had reasoned to before: how far apart they are, as a share of the call. Answers that cannot tell (too
wide, or taken while others had the CPU) are shown and not judged; what bounds a term from one side is judged on that
side (:mod:`benchmarks.agreement`). The residual is taken from five families, each in eager torch and in ONNX Runtime,
and from a training step with its loader. MiniLM is diagnosed by the command, as people wait for it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import common, rounds, unseen
from benchmarks.agreement import Answer, answers, judge, judge_residual
from ironlaw import perturbing
from ironlaw.bench import Subject
from ironlaw.examining import examined
from ironlaw.loop import BASELINE_LAUNCHES
from ironlaw.measure.paired import Effort
from ironlaw.records import Diagnosis, Goal, Machine, UserError, digest_of, from_data
from ironlaw.session import Session, allowed_cpus
from ironlaw.store import Store, clear_errors

DEMOS = ("digits", "mnist", "minilm", "efficientnet")
TRAINING = "digits-training"
FAMILIES = {
    "cnn": "cnn-l-36x72",
    "transformer encoder": "encoder-216x72",
    "decoder step": "step-288+180",
    "mlp": "mlp-1900",
    "rnn": "lstm-144x50@8",
}
GRAPH = "onnxruntime"
EFFORT, LAUNCHES = Effort(cycles=6, block_s=0.1, round_s=6.0, against_self=False), 2
DIAGNOSIS_S, COUNTING_S = 20.0, 2.0
COST = "cost"
"""The case by which ``--only`` asks for the seconds of a diagnosis and of counting."""
MISSING = 4
"""Exit code of an error that names a prerequisite."""
QUICK_DEMO, QUICK_CAUSES, QUICK_FAMILY = "digits", ("tiny",), "mlp"


def run(options: common.Options) -> common.Report:
    report = options.report("terms")
    home = options.home / "terms"
    machine = rounds.known_machine(home=home, quick=True, talk=options.talk)
    found: list[Answer] = []
    for demo in [QUICK_DEMO] if options.quick else DEMOS:
        if options.wants(demo):
            found += _demo(demo, report, home, options)
    for family in [QUICK_FAMILY] if options.quick else FAMILIES:
        if options.wants(family):
            _residuals(family, report, home, options)
    if options.wants(TRAINING) and not options.quick:
        found += _training(report, home, machine, options)
    report.arms += [answer.row() for answer in found]
    judge(report, found)
    if options.wants(COST) and not options.quick:
        _cost(report, home, machine, options)
    if options.quick:
        causes = ", ".join(QUICK_CAUSES)
        report.left_out.append(f"all demos but {QUICK_DEMO}, and there all perturbations but {causes}")
        report.left_out.append(f"all families but {QUICK_FAMILY}, the training step, and what a diagnosis costs")
    return report


# ---------------------------------------------------------------- terms against perturbations


def _demo(demo: str, report: common.Report, home: Path, options: common.Options) -> list[Answer]:
    """What each perturbation of a demo answers; nothing, with a note, where a package of it is missing."""
    options.talk(f"{demo}: diagnose and perturb")
    try:
        with rounds.session(f"demo:{demo}", Goal(), home, options.talk, ceilings=True) as made:
            while options.quick and len(made.bench.self_launches) < BASELINE_LAUNCHES:
                made.bench.measure([], rounds.QUICK)
            diagnosis = _diagnosed(made, options.talk)
            causes = QUICK_CAUSES if options.quick else perturbing.NAMES
            baseline = made.bench.baseline
            taken = perturbing.perturb(made.bench, baseline, diagnosis, made.machine, causes, options.talk)
    except UserError as error:
        if error.exit_code != MISSING:
            raise
        report.notes.append(f"{demo} was left out: {error}")
        return []
    report.notes += [f"{demo}: {one.name}: {one.evidence}" for one in taken if one.seconds is None]
    report.notes += observer(demo, diagnosis)
    return answers(demo, diagnosis, taken)


def _diagnosed(made: Session, talk: Callable[[str], None]) -> Diagnosis:
    """The diagnosis of the baseline without any perturbation."""
    loop = made.loop({}, 600.0, talk)
    loop.measure_baseline()
    assert loop.diagnosis is not None
    return loop.diagnosis


def observer(case: str, diagnosis: Diagnosis) -> list[str]:
    """What the pass that times operators adds to a call, in words; nothing where the profile does not say."""
    added, call = diagnosis.ledger.observer_s, diagnosis.total_s
    if added is None:
        return []
    return [f"observer of {case}: {added * 1e3:.3g} ms on a call of {call * 1e3:.3g} ms; never in a timed pass"]


# ---------------------------------------------------------------- residual


def _residuals(family: str, report: common.Report, home: Path, options: common.Options) -> None:
    """One model of a family on both runtimes, measured in the same rounds."""
    options.talk(f"{family}: diagnose in eager torch and in {GRAPH}")
    with rounds.session(unseen.workload(FAMILIES[family]), Goal(), home, options.talk, ceilings=True) as made:
        bench = made.bench
        graph = rounds.built(bench, rounds.plan_of([("runtime", {"target": GRAPH})]))
        wanted = 1 if options.quick else LAUNCHES
        while len(bench.baseline.launches) < wanted or (graph.failure is None and len(graph.launches) < wanted):
            bench.measure([graph], EFFORT)
        subjects: dict[str, Subject] = {"torch": bench.baseline, GRAPH: graph}
        for target, subject in subjects.items():
            if subject.failure is not None:
                report.notes.append(f"{family}: {target} failed: {subject.failure.reason}")
                continue
            judge_residual(report, f"{family}, {target}", examined(bench, subject, made.machine, options.talk))


# ---------------------------------------------------------------- a training step with its loader


def _training(report: common.Report, home: Path, machine: Machine, options: common.Options) -> list[Answer]:
    """Its residual, and its answers: a step on batches that are in memory already."""
    diagnosis = _trained(home, machine, options)
    judge_residual(report, f"{TRAINING}, torch", diagnosis)
    report.notes += observer(TRAINING, diagnosis)
    settled = diagnosis.step is not None and diagnosis.step.gain.settled
    return answers(TRAINING, diagnosis, diagnosis.perturbations, settled=settled)


def _trained(home: Path, machine: Machine, options: common.Options) -> Diagnosis:
    """The diagnosis of the training demo; of this commit and machine it is made once."""
    from ironlaw.training_diagnosis import examined as step_examined
    from ironlaw.workloads.demos import demo
    from ironlaw.workloads.training import Training

    key = digest_of([TRAINING, common.commit(), machine.environment.identity.digest, machine.ceilings])
    with Store(home) as store, clear_errors(home):
        known = store.fact(key, "diagnosis")
        if known is None:
            job = demo(TRAINING)
            assert isinstance(job, Training)
            cpus = allowed_cpus(None)
            found = step_examined(job, machine, cpus, store.folder("training"), options.talk)
            store.keep(key, "diagnosis", found.diagnosis)
            known = store.fact(key, "diagnosis")
    return from_data(Diagnosis, known)


# ---------------------------------------------------------------- cost


def _cost(report: common.Report, home: Path, machine: Machine, options: common.Options) -> None:
    """Seconds of ``ironlaw diagnose demo:minilm`` on a machine whose ceilings are known, and of its counting pass."""
    try:
        options.talk("minilm: count")
        counted = counting_s("demo:minilm")
    except UserError as error:
        if error.exit_code != MISSING:
            raise
        report.notes.append(f"what a diagnosis costs was left out: {error}")
        return
    options.talk("minilm: the command, from nothing but the ceilings")
    took = command_s(["diagnose", "demo:minilm", "--quiet"], machine)
    report.goal("diagnosis of minilm: seconds of the command", took, at_most=DIAGNOSIS_S)
    low, value, high = min(counted), statistics.median(counted), max(counted)
    report.goal("counting pass of minilm: seconds", value, low, high, at_most=COUNTING_S, note="torch is loaded")


def counting_s(spec: str, times: int = 3) -> list[float]:
    """Seconds of counting one call of a workload, in a process that has torch."""
    from ironlaw.measure.ledger import ledger_of
    from ironlaw.workloads.load import served
    from ironlaw.workloads.snapshot import snapshot

    workload = served(spec)
    with tempfile.TemporaryDirectory() as folder:
        taken = snapshot(workload, Path(folder), "counted")
        found = []
        for _ in range(times):
            start = time.perf_counter()
            ledger_of(taken.model, taken, taken.batch, cache_bytes=32 << 20)
            found.append(time.perf_counter() - start)
    return found


def command_s(arguments: Sequence[str], machine: Machine) -> float:
    """Seconds of an ``ironlaw`` command in a fresh store that knows the machine. Raises CalledProcessError."""
    from ironlaw.machine import cached

    with tempfile.TemporaryDirectory() as folder:
        cached.save(Path(folder) / "machines", machine)
        command = [sys.executable, "-c", "from ironlaw.cli import main; main()", *arguments]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "IRONLAW_HOME": folder})
        return time.perf_counter() - start


if __name__ == "__main__":
    common.main("terms", run)
