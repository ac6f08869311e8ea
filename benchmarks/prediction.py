"""How near are predicted gains to measured ones, on families of models that nothing was calibrated on.

For each held-out model (:mod:`benchmarks.families`) every lever that applies predicts the gain of its first settings
from the diagnosis of the baseline alone; then the points are built and measured, interleaved. Reported are the
absolute log errors (median, with an interval that resamples whole models), the share of 90 % intervals that hold what
was measured and how wide they are, and how far the baseline strays from itself in the same rounds. Predictions are kept
in the store before anything of them is built, so that they are made once and blind.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from benchmarks import common, families, rounds
from benchmarks.arithmetic import clustered_interval
from ironlaw.bench import Bench, Subject
from ironlaw.laws.shares import wilson
from ironlaw.loop import BASELINE_LAUNCHES
from ironlaw.measure.paired import SELF, SHORT
from ironlaw.measure.statistics import MIN_LAUNCHES
from ironlaw.plan.space import Plan
from ironlaw.records import Gain, Goal, Interval, Prediction, from_data
from ironlaw.registry import levers

MEDIAN_ERROR, SPREADS, COVERAGE = 0.10, 2.0, 0.90
SETTINGS = 1
"""How many of a lever's settings are tried, the most promising first; of ``runtime``, every target."""
QUICK, QUICK_LEVERS = ("mlp-300",), ("runtime(target=onnxruntime)", "bf16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One prediction and its outcome."""

    model: str
    family: str
    lever: str
    predicted: Interval
    measured: Gain

    @property
    def error(self) -> float:
        """|ln(predicted / measured)|."""
        return abs(math.log(self.predicted.value / self.measured.median))

    @property
    def covered(self) -> bool:
        return self.predicted.low <= self.measured.median <= self.predicted.high


def run(options: common.Options) -> common.Report:
    report = options.report("prediction")
    points: list[Point] = []
    spreads: list[float] = []
    for name, (family, _) in families.models().items():
        if not (options.wants(name) or options.wants(family)) or (options.quick and name not in QUICK):
            continue
        options.talk(f"{name} ({family})")
        found, spread = _model(name, family, report, options)
        points += found
        spreads += spread
    report.arms += [_row(point) for point in points]
    if options.quick:
        whole = len(families.models())
        report.left_out.append(f"{whole - len(QUICK)} of {whole} models, and all launches but one short one")
        report.left_out.append(f"all points but {' and '.join(QUICK_LEVERS)}")
    if options.only:
        report.unjudged = report.unjudged or "a part of the set"
    judge(report, points, spreads)
    return report


def judge(report: common.Report, points: list[Point], spreads: list[float]) -> None:
    """The goals: the median error against 0.10 or twice the spread of A/A, and the coverage of the intervals."""
    settled = [point for point in points if point.measured.settled]
    if len(settled) < len(points):
        report.notes.append(f"{len(points) - len(settled)} of {len(points)} points did not settle and are not judged")
    spread = float(np.median(spreads)) if spreads else 0.0
    limit = max(MEDIAN_ERROR, SPREADS * spread)
    if not settled:
        report.goal("median |ln(predicted / measured)|", None, at_most=limit, note="no point settled")
        report.goal("coverage of the 90 % intervals", None, at_least=COVERAGE, note="no point settled")
        return
    by_model: dict[str, list[float]] = defaultdict(list)
    for point in settled:
        by_model[point.model].append(point.error)
    low, value, high = clustered_interval(list(by_model.values()), lambda errors: float(np.median(errors)))
    report.goal("median |ln(predicted / measured)|", value, low, high, at_most=limit)
    covered = sum(point.covered for point in settled)
    low, high = wilson(covered, len(settled))
    report.goal("coverage of the 90 % intervals", covered / len(settled), low, high, at_least=COVERAGE)
    width = float(np.median([point.predicted.high / point.predicted.low for point in settled]))
    report.notes.append(f"the 90 % intervals are {width:.2f} wide in the middle (high over low)")
    report.notes.append(f"A against A strays by {spread:.3f} (log) in the middle of {len(spreads)} models")
    for family in sorted({point.family for point in settled}):
        mine = [point for point in settled if point.family == family]
        share = sum(point.covered for point in mine)
        middle = float(np.median([point.error for point in mine]))
        report.notes.append(f"{family}: median error {middle:.3f}, {share} of {len(mine)} covered")


def _model(name: str, family: str, report: common.Report, options: common.Options) -> tuple[list[Point], list[float]]:
    home = options.home / "prediction"
    with rounds.session(families.workload(name), Goal(), home, options.talk, ceilings=True) as made:
        loop = made.loop(levers(), 600.0, options.talk)
        while options.quick and len(made.bench.self_launches) < BASELINE_LAUNCHES:
            made.bench.measure([], SHORT)
        loop.measure_baseline()
        plans = predictions(made.bench, list(loop.search.open.values()), quick=options.quick)
        subjects = {lever: rounds.built(made.bench, plan) for lever, plan in plans.items()}
        working = {lever: subject for lever, subject in subjects.items() if subject.failure is None}
        report.notes += [_failed(name, lever, s) for lever, s in subjects.items() if s.failure is not None]
        taken = rounds.measured(
            made.bench,
            {lever: subject.artefact for lever, subject in working.items() if subject.artefact},
            launches=1 if options.quick else options.launches or MIN_LAUNCHES,
            effort=rounds.effort_of(options.quick),
            label="prediction",
        )
    report.notes += [f"{name}: {lever} failed: {why}" for lever, why in taken.failed.items()]
    points = [
        Point(
            model=name,
            family=family,
            lever=lever,
            predicted=plans[lever].predicted.speedup,
            measured=rounds.ratio(taken.rounds, lever, "baseline"),
        )
        for lever in working
        if lever not in taken.failed
    ]
    return points, [abs(math.log(rounds.ratio(taken.rounds, SELF, "baseline").median))]


def predictions(bench: Bench, opened: list[Plan], *, quick: bool = False) -> dict[str, Plan]:
    """One plan a lever (of ``runtime`` one a target) by its label, with the prediction that was kept first."""
    chosen: dict[str, Plan] = {}
    tried: dict[str, int] = defaultdict(int)
    for plan in opened:
        lever = plan.steps[-1].lever
        if (lever != "runtime" and tried[lever] >= SETTINGS) or (quick and plan.label not in QUICK_LEVERS):
            continue
        tried[lever] += 1
        chosen[plan.label] = plan
    key, what = f"{bench.baseline.key}:predicted{':quick' if quick else ''}", "predictions"
    if bench.store.fact(key, what) is None:
        bench.store.keep(key, what, {label: plan.predicted for label, plan in chosen.items()})
    kept = bench.store.fact(key, what) or {}
    return {
        label: dataclasses.replace(plan, predicted=from_data(Prediction, kept[label]))
        for label, plan in chosen.items()
        if label in kept
    }


def _failed(model: str, lever: str, subject: Subject) -> str:
    assert subject.failure is not None
    return f"{model}: {lever} was not built: {subject.failure.reason}"


def _row(point: Point) -> dict[str, common.Cell]:
    return {
        "model": point.model,
        "family": point.family,
        "lever": point.lever,
        "predicted": point.predicted.value,
        "low": point.predicted.low,
        "high": point.predicted.high,
        "measured": point.measured.median,
        "error": point.error,
        "covered": point.covered,
        "settled": point.measured.settled,
    }


if __name__ == "__main__":
    common.main("prediction", run)
