"""The tuned point against what other tools give by themselves, on real models, for latency and for throughput.

For each workload and objective ``tune`` runs under a time limit; then every arm (:mod:`benchmarks.arms`,
:mod:`benchmarks.foreign`) is built by the same builder, scored by the same judge, and measured in the same rounds as
the tuned point (:mod:`benchmarks.contest`), so that their ratio is paired. An arm that is over the budget is shown but
is no rival. Two goals: the tuned point is never slower than the best arm that keeps the budget, case by case; and over
all cases it is 1.15 times better, in the geometric mean, than the best *single* arm, since a person picks one tool.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import arms, common, contest
from benchmarks.arithmetic import geometric_interval
from benchmarks.contest import Case, Workload
from ironlaw.records import Objective, UserError

NEVER_SLOWER, MEAN_GAIN = 0.97, 1.15
WORKLOADS = {
    "digits": Workload(spec="demo:digits"),
    "mnist": Workload(spec="demo:mnist", max_drop="0.5pt"),
    "minilm": Workload(spec="demo:minilm"),
    "efficientnet": Workload(spec="demo:efficientnet", min_quality=15.0),
    "efficientnet@32": Workload(spec="demo:efficientnet@32", min_quality=15.0),
}
OBJECTIVES = (Objective.LATENCY, Objective.THROUGHPUT)
Ratio = tuple[float, float, float]


def run(options: common.Options) -> common.Report:
    report = options.report("peers")
    cases: list[Case] = []
    for name, workload in WORKLOADS.items():
        for objective in OBJECTIVES:
            case = f"{name} {objective}"
            if not (options.wants(name) or options.wants(case)):
                continue
            if options.quick and (name, objective) != ("digits", Objective.LATENCY):
                report.left_out.append(f"{case}: a quick run takes digits for latency only")
            else:
                try:
                    cases.append(contest.held(case, workload, objective, options))
                except UserError as error:
                    report.left_out.append(f"{case}: {error.given}: {error.wrong}")
    for found in cases:
        report.arms += contest.rows(found)
        report.notes += found.notes
    if options.quick:
        report.left_out.append("tune, and every arm but " + ", ".join(arms.QUICK))
    judge(report, cases, whole=not options.only)
    return report


def judge(report: common.Report, cases: Sequence[Case], *, whole: bool = True) -> None:
    """The goals: case by case against its best arm, and all cases together against the best single arm.

    The latter is about the whole set: of a part it is shown and not judged.
    """
    for case in cases:
        best = case.best
        gain = best.against if best else None
        report.goal(
            f"{case.name}: tuned over best arm",
            gain.median if gain else None,
            gain.low if gain else None,
            gain.high if gain else None,
            at_least=NEVER_SLOWER,
            within_floor=case.floor,
            note=f"best arm: {best.name}" if best else "no arm to compare with",
        )
    single, ratios = best_single(cases)
    low, value, high = geometric_interval(ratios) if ratios else (None, None, None)
    note = f"best single arm: {single}, over {len(ratios)} cases" if single else "no arm to compare with"
    report.unjudged = report.unjudged or ("" if whole else f"a part of the set; {note}")
    report.goal("tuned over the best single arm, geometric mean", value, low, high, at_least=MEAN_GAIN, note=note)


def best_single(cases: Sequence[Case]) -> tuple[str | None, list[Ratio]]:
    """The arm that the tuned point leads least over all cases, with (low, ratio, high) of each case.

    Where an arm failed or is over the budget, a person who had picked it would stay with the eager model, so its
    ratio there is that of eager.
    """
    names = dict.fromkeys(arm.name for case in cases for arm in case.arms if arm.within and arm.against)
    table = {name: [_standing(case, name) for case in cases] for name in names}
    whole = {name: [r for r in ratios if r is not None] for name, ratios in table.items() if None not in ratios}
    if not whole:
        return None, []
    name = min(whole, key=lambda n: geometric_interval(whole[n])[1])
    return name, whole[name]


def _standing(case: Case, name: str) -> Ratio | None:
    by_name = {arm.name: arm.against for arm in case.arms if arm.within and arm.against}
    gain = by_name.get(name) or by_name.get(arms.EAGER)
    return (gain.low, gain.median, gain.high) if gain else None


if __name__ == "__main__":
    common.main("peers", run)
