"""Does tune come within 5 % of the best of a committed grid in a quarter of the time that the grid takes.

The grid (:mod:`benchmarks.grid`) is built, scored and measured in full as a person would who tries everything, and
its time is what that took. Then ``tune`` gets a quarter of it, in a store of its own that knows nothing but the
machine's ceilings (which are measured once a machine, not once a model). The best of the grid and the tuned point
are measured again, interleaved in the same rounds: the winner of a grid is partly lucky, fresh rounds are not.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field

from benchmarks import common, grid, rounds
from ironlaw import api
from ironlaw.bench import Bench, Subject
from ironlaw.records import Artefact, Gain, Goal, Run
from ironlaw.session import Session

CASES = {"digits": "1pt", "mnist": "0.5pt"}
WITHIN, SHARE, MARGIN = 0.95, 0.25, 0.95
"""``tune`` is told a little less than its share, since a measurement that has begun is finished."""
TOGETHER = 8


@dataclass(kw_only=True)
class Point:
    """One point of the grid: its gain over the baseline, and whether it keeps the budget."""

    name: str
    subject: Subject
    gain: Gain | None = None
    within: bool = False
    reason: str = ""
    spent_s: float = 0.0


@dataclass(kw_only=True)
class Grid:
    points: list[Point] = field(default_factory=list)
    spent_s: float = 0.0

    @property
    def best(self) -> Point | None:
        """The fastest point that keeps the budget."""
        kept = [point for point in self.points if point.within and point.gain is not None]
        return max(kept, key=lambda point: point.gain.median if point.gain else 0.0, default=None)


def run(options: common.Options) -> common.Report:
    from ironlaw.quantities import budget

    report = options.report("search")
    names = grid.QUICK if options.quick else tuple(grid.points())
    for case, drop in CASES.items():
        if not options.wants(case):
            continue
        if options.quick and case != "digits":
            report.left_out.append(f"{case}: a quick run takes digits only")
            continue
        goal = Goal(max_drop=budget(drop, "budget"))
        home = options.home / "search" / case
        with rounds.session(f"demo:{case}", goal, home, options.talk, ceilings=False) as made:
            found = _grid(made, goal, names, options)
            report.arms += [_row(case, point) for point in found.points]
            if not options.quick:
                _against(report, case, drop, made, found, options)
    if options.quick:
        report.left_out.append(f"all but {len(names)} of {len(grid.points())} points of the grid, and tune itself")
        for case in CASES:
            report.goal(f"{case}: tuned over best of grid", None, at_least=WITHIN)
    return report


def _grid(made: Session, goal: Goal, names: tuple[str, ...], options: common.Options) -> Grid:
    """Every point built, scored, measured. What a resumed run finds in the store counts with the time it took."""
    bench, steps = made.bench, grid.points()
    found = Grid(points=[_scored(bench, goal, name, steps[name], options) for name in names])
    ready = [point for point in found.points if point.subject.artefact and not point.subject.failure]
    for start in range(0, len(ready), TOGETHER):
        _measure(made, ready[start : start + TOGETHER], options)
    found.spent_s = sum(point.spent_s for point in found.points)
    return found


def _scored(bench: Bench, goal: Goal, name: str, steps: grid.Steps, options: common.Options) -> Point:
    options.talk(f"grid: {name}")
    subject = rounds.built(bench, rounds.plan_of(steps))
    before_s = subject.spent_s
    bench.score(subject)
    scored_s = _kept_seconds(bench, f"{subject.key}:score", subject.spent_s - before_s)
    built = bench.store.fact(subject.key, "build") or {"seconds": subject.spent_s}
    point = Point(name=name, subject=subject, spent_s=float(built["seconds"]) + scored_s)
    if subject.failure is not None:
        point.reason = f"{subject.failure.outcome}: {subject.failure.reason}"
    else:
        point.within, _, point.reason = rounds.quality(bench, goal, subject)
    return point


def _measure(made: Session, points: list[Point], options: common.Options) -> None:
    taken = rounds.measured(
        made.bench,
        {point.name: point.subject.artefact for point in points if point.subject.artefact},
        launches=rounds.launches_of(options.quick, options.launches),
        effort=rounds.effort_of(options.quick),
        label="grid",
    )
    limit = rounds.floor(taken.rounds)
    for point in points:
        point.spent_s += taken.spent_s / len(points)
        if point.name in taken.failed:
            point.within, point.reason = False, taken.failed[point.name]
        else:
            point.gain = rounds.ratio(taken.rounds, point.name, "baseline", floor=limit)


def _kept_seconds(bench: Bench, key: str, now_s: float) -> float:
    """The most that this step ever took: a resumed run finds its work done and must not think it free."""
    known = float(bench.store.fact(key, "seconds") or 0.0)
    if now_s > known:
        bench.store.keep(key, "seconds", now_s)
    return max(known, now_s)


def _against(report: common.Report, case: str, drop: str, made: Session, found: Grid, options: common.Options) -> None:
    best = found.best
    if best is None or best.subject.artefact is None:
        report.notes.append(f"{case}: no point of the grid keeps the budget")
        report.goal(f"{case}: tuned over best of grid", None, at_least=WITHIN)
        return
    tuned = _tuned(case, drop, made.bench, found.spent_s, options)
    took_s = tuned.spent_s
    pair = {"best of grid": best.subject.artefact, "tuned": artefact_of(tuned)}
    taken = rounds.measured(
        made.bench,
        pair,
        launches=rounds.launches_of(False, options.launches),
        effort=rounds.effort_of(False),
        label="final",
    )
    name = f"{case}: tuned over best of grid"
    if taken.failed:
        report.goal(name, None, at_least=WITHIN, note="; ".join(taken.failed.values()))
        return
    gain = rounds.ratio(taken.rounds, "tuned", "best of grid", floor=rounds.floor(taken.rounds))
    over = rounds.ratio(taken.rounds, "tuned", "baseline")
    label = tuned.best_trial.label
    report.arms.append({"case": case, "point": f"tuned: {label}", "gain": over.median, "low": over.low,
                        "high": over.high, "within": True, "seconds": took_s})  # fmt: skip
    report.goal(name, gain.median, gain.low, gain.high, at_least=WITHIN, within_floor=gain.floor)
    report.goal(f"{case}: tune's time over the grid's", took_s / found.spent_s, at_most=SHARE)
    report.notes.append(
        f"{case}: best of grid is {best.name} ({found.spent_s:.0f} s); tuned is {label} ({took_s:.0f} s)"
    )


def _tuned(case: str, drop: str, bench: Bench, grid_s: float, options: common.Options) -> Run:
    """The run of ``tune`` in a store of its own, made once for each commit; one that was cut off starts anew."""
    home = options.home / "search" / f"{case}-tuned"
    limit_s = options.time_limit_s or MARGIN * SHARE * grid_s
    key, what = f"{bench.baseline.key}:tuned:{common.commit()}:{limit_s:.0f}", "run"
    if bench.store.fact(key, what) is not None:
        return api.load_run("latest", home=home)
    options.talk(f"{case}: the grid took {grid_s:.0f} s; tune gets {limit_s:.0f} s")
    for folder in home.glob("*"):
        if folder.name != "machines":
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    api.machine(home=home, quick=True, talk=options.talk)
    run = api.tune(f"demo:{case}", max_drop=drop, time_limit=limit_s, home=home, talk=options.talk)
    bench.store.keep(key, what, {"id": run.id, "seconds": run.spent_s})
    return run


def artefact_of(run: Run) -> Artefact:
    """What the best point of a run ships."""
    artefact = run.best_trial.artefact
    assert artefact is not None
    return artefact


def _row(case: str, point: Point) -> dict[str, common.Cell]:
    gain = point.gain
    return {
        "case": case,
        "point": point.name,
        "gain": gain.median if gain else None,
        "low": gain.low if gain else None,
        "high": gain.high if gain else None,
        "within": point.within,
        "seconds": point.spent_s,
        "why": "" if point.within else point.reason,
    }


if __name__ == "__main__":
    common.main("search", run)
