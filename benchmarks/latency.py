"""How near is the predicted time of a call to the measured one, on 63 unseen models, in eager torch and ONNX Runtime.

Nine families, seven shapes each (:mod:`benchmarks.unseen`). A prediction is a function of the counting pass of
one call and of what this machine was calibrated to; it is kept before the model is built or timed
(:mod:`benchmarks.calls`).
Goals are judged on both runtimes together and shown for each. Intervals of 90 % are scored by coverage and by a score
that punishes width, beside what the score would be for errors just as large as the goal allows whose size is known.
How far two launches of the same artefact lie apart (A against A) is printed beside the errors: nothing predicts better.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import numpy as np

from benchmarks import calls, common, rounds, unseen
from benchmarks.arithmetic import best_interval_score, clustered_interval, interval_score
from benchmarks.calls import Call
from ironlaw.laws.shares import wilson
from ironlaw.store import Store, clear_errors

MEDIAN_ERROR, NEAR, NEAR_SHARE, COVERAGE = 0.10, 0.25, 0.90, 0.90
MIDDLE = 0.6745
"""The median of |x| of a normal x with deviation 1: from the median error to a deviation."""
FEWEST = 60
"""Models, of which fewer judge nothing."""
WORST = 5
QUICK = ("mlp-300", "step-160+50")


def run(options: common.Options) -> common.Report:
    report = options.report("latency")
    everything = unseen.models()
    wanted = [n for n, (family, _) in everything.items() if options.wants(n) or options.wants(family)]
    chosen = [name for name in wanted if not options.quick or name in QUICK]
    found: list[Call] = []
    with ExitStack() as stack:
        home = options.home / "latency"
        store = stack.enter_context(Store(home))
        stack.enter_context(clear_errors(home))
        builder = stack.enter_context(calls.Builder())
        machine = rounds.known_machine(home=home, quick=True, talk=options.talk)
        for number, name in enumerate(chosen, 1):
            options.talk(f"{name} ({everything[name][0]}): {number} of {len(chosen)}")
            taken, notes = calls.calls_of(name, store, machine, builder, options.talk)
            found += taken
            report.notes += notes
    if options.quick:
        report.left_out.append(f"{len(everything) - len(chosen)} of {len(everything)} models")
    elif len(chosen) < len(everything):
        report.unjudged = report.unjudged or "a part of the set"
    report.arms += [_row(call) for call in found]
    judge(report, found)
    return report


def judge(report: common.Report, found: Sequence[Call]) -> None:
    """The goals over all settled calls, the same numbers by runtime and family, and the worst errors."""
    settled = [call for call in found if call.settled]
    if len(settled) < len(found):
        report.notes.append(f"{len(found) - len(settled)} of {len(found)} calls did not settle and are not judged")
    models = {call.model for call in settled}
    if len(models) < FEWEST:
        report.unjudged = report.unjudged or f"{len(models)} models settled, of which {FEWEST} are needed"
    if settled:
        spread = calls.spread_of(settled)
        report.notes.append(f"A against A strays by {math.expm1(spread):.1%} in the middle of {len(settled)} pairs")
    _goals(report, "", settled)
    for target in calls.TARGETS:
        _goals(report, f"{target}: ", [call for call in settled if call.target == target])
    report.notes.append(f"interval score of honest intervals at the goal's median error: {reference_score():.3f}")
    report.notes += [_family(name, own) for name, own in _by(settled, "family").items()]
    for call in sorted(settled, key=lambda one: -abs(one.error))[:WORST]:
        report.notes.append(
            f"furthest: {call.model} on {call.target}, {math.exp(call.error):.2f}x of what was measured"
        )


def reference_score() -> float:
    """The interval score of normal log errors whose median size is just the goal's and whose deviation is known."""
    return best_interval_score(math.log1p(MEDIAN_ERROR) / MIDDLE)


def median_error(logs: Iterable[float]) -> float:
    """The median of |ln(predicted / measured)| as a relative error: 0.1 is 1.1 times too much or too little."""
    return math.expm1(float(np.median(np.abs(list(logs)))))


def score(call: Call) -> float:
    """The interval score on the log scale."""
    return interval_score(
        math.log(call.predicted.low), math.log(call.predicted.high), math.log(call.measured_s), missed=1.0 - COVERAGE
    )


def near(call: Call) -> bool:
    """Whether the prediction is within a quarter of what was measured, as a ratio either way."""
    return abs(call.error) <= math.log1p(NEAR)


def _goals(report: common.Report, of: str, settled: Sequence[Call]) -> None:
    """Median, share within a quarter, coverage; the interval of the median resamples whole models."""
    shares = {
        f"{of}share within {NEAR:.0%}": (NEAR_SHARE, sum(map(near, settled))),
        f"{of}coverage of the 90 % intervals": (COVERAGE, sum(call.covered for call in settled)),
    }
    if not settled:
        report.goal(f"{of}median error", None, at_most=MEDIAN_ERROR, note="no call settled")
        for name, (limit, _) in shares.items():
            report.goal(name, None, at_least=limit, note="no call settled")
        return
    errors = [[call.error for call in own] for own in _by(settled, "model").values()]
    low, value, high = clustered_interval(errors, median_error)
    floor = f"A against A: {math.expm1(calls.spread_of(settled)):.3f}"
    report.goal(f"{of}median error", value, low, high, at_most=MEDIAN_ERROR, note=floor)
    for name, (limit, hits) in shares.items():
        low, high = wilson(hits, len(settled))
        report.goal(name, hits / len(settled), low, high, at_least=limit)


def _family(name: str, own: Sequence[Call]) -> str:
    """The numbers of one family, each runtime apart: error, bias, share within a quarter, coverage, score, A/A."""
    parts = []
    for target, mine in _by(own, "target").items():
        count = len(mine)
        bias = math.exp(float(np.median([call.error for call in mine])))
        parts.append(
            f"{target} median error {median_error(call.error for call in mine):.1%} (predicted {bias:.2f}x), "
            f"{sum(map(near, mine))} of {count} within {NEAR:.0%}, {sum(call.covered for call in mine)} covered, "
            f"interval score {float(np.mean([score(call) for call in mine])):.2f}, "
            f"A against A {math.expm1(calls.spread_of(mine)):.1%}"
        )
    return f"{name}: {'; '.join(parts)}"


def _by(found: Sequence[Call], field: str) -> dict[str, list[Call]]:
    groups: dict[str, list[Call]] = defaultdict(list)
    for call in found:
        groups[getattr(call, field)].append(call)
    return dict(groups)


def _row(call: Call) -> dict[str, common.Cell]:
    return {
        "model": call.model,
        "family": call.family,
        "target": call.target,
        "predicted ms": call.predicted.value * 1e3,
        "low ms": call.predicted.low * 1e3,
        "high ms": call.predicted.high * 1e3,
        "measured ms": call.measured_s * 1e3,
        "predicted/measured": math.exp(call.error),
        "A/A": math.exp(call.spread),
        "score": score(call),
        "covered": call.covered,
        "faults predicted": None if call.faults is None else call.faults.value,
        "faults": call.faulted,
        "settled": call.settled,
    }


if __name__ == "__main__":
    common.main("latency", run)
