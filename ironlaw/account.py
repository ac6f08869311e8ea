"""The account of a run in words: what was tried, what was refused and why, what stands between here and the bound."""

from __future__ import annotations

from collections.abc import Sequence

from ironlaw.finished import Finished
from ironlaw.records import Diagnosis, Objective, Outcome, Run, Trial

_SHOWN = 8
"""Plans that were not tried and are named, of each kind."""


def diagnosis_line(diagnosis: Diagnosis) -> str:
    """One line: the terms, the largest first, and the verdict."""
    ranked = sorted(diagnosis.terms, key=lambda t: -t.seconds.value)
    shares = ", ".join(f"{t.term} {diagnosis.share(t.term):.0%}" for t in ranked if diagnosis.share(t.term) >= 0.01)
    verdict = f"{diagnosis.dominant} dominates" if diagnosis.dominant else "undetermined"
    what = "call" if diagnosis.step is None else "step"
    return f"{diagnosis.total_s * 1e3:.3g} ms a {what}: {shares} -> {verdict}"


def trial_line(trial: Trial, screened: float | None) -> str:
    """One line of progress about a trial."""
    gain = f"{screened:.2f}x" if screened is not None else "not measured"
    said = {Outcome.SCREENED_OUT: "", Outcome.UNSETTLED: ""}.get(trial.outcome, f" {trial.outcome}: {trial.reason}")
    quality = ""
    if trial.quality is not None:
        quality = f", {trial.quality.metric} {_number(trial.quality.value)}"
    return f"  {trial.label}: {gain}{quality}{said}"


def words_of(run: Run, search: Finished) -> tuple[str, ...]:
    """The account, a sentence a line."""
    tried = len(run.trials)
    failed = [t for t in run.trials if t.outcome.failed]
    lines = [
        f"{tried} candidates were tried, {len(failed)} of them failed, {len(run.refused)} levers were refused;"
        f" the search ended by {search.ended_because}.",
        f"The smallest gain that may be claimed here and now is {run.floor:.3f}x (A against A).",
        _best_line(run),
    ]
    if run.goal.rate_per_s is not None:
        lines.append(_arrivals_line(run, run.goal.rate_per_s))
    if over := [t for t in run.trials if t.outcome == Outcome.OVER_BUDGET]:
        fastest = max(over, key=lambda t: t.gain.median if t.gain else 0.0)
        gain = f"{fastest.gain.median:.2f}x" if fastest.gain else ""
        lines.append(f"Over the quality budget: {len(over)}; the fastest, {fastest.label}, {gain}: {fastest.reason}.")
    lines += [f"{t.label} failed: {t.reason}" for t in failed]
    if search.dropped:
        lines.append(f"{len(search.dropped)} plans were not tried, being unable to win: {_first(search.dropped)}.")
    if late := search.unaffordable:
        lines.append(f"{len(late)} plans had no time left (raise --time-limit): {_first(late)}.")
    if any(t.measured and t.measured.energy_j.source == "modelled" for t in (run.baseline, *run.trials)):
        lines.append(
            "Energy is modelled: events counted here times published energies at 7 nm (Jouppi et al. 2021), without"
            " idle power and control; ratios only."
        )
    lines.append(_bound_line(run.best_diagnosis or run.diagnosis))
    if not run.satisfied:
        lines.append("No point satisfies the constraints: " + _in_the_way(run))
    return tuple(lines)


def _best_line(run: Run) -> str:
    best = run.best_trial
    if best.id == run.baseline.id:
        return "Nothing is provably better than the baseline within the budget: keep it."
    assert best.gain is not None
    what = {
        Objective.LATENCY: "faster a call" if run.goal.rate_per_s is None else "shorter from arrival to answer",
        Objective.THROUGHPUT: "more examples a second",
        Objective.SIZE: "smaller",
        Objective.MEMORY: "less memory",
        Objective.ENERGY: "less energy",
    }[run.goal.objective]
    gain = f"{best.gain.median:.2f}x [{best.gain.low:.2f}, {best.gain.high:.2f}] {what}"
    return f"The best point is {best.label}: {gain}; {best.quality.reason if best.quality else ''}."


def _arrivals_line(run: Run, rate_per_s: float) -> str:
    """What latency means here, and whether the baseline keeps up at all."""
    base = run.baseline.measured
    served = f"the baseline serves at most {base.throughput_per_s:.4g}/s" if base else ""
    late = ", so that its latency has no limit and gains over it are lower bounds" if _overloaded(run) else ""
    return f"Latency is from arrival to answer, {rate_per_s:g}/s arriving at random; {served}{late}."


def _overloaded(run: Run) -> bool:
    rate, base = run.goal.rate_per_s, run.baseline.measured
    return rate is not None and base is not None and base.throughput_per_s <= rate


def _bound_line(diagnosis: Diagnosis) -> str:
    useful = [b for b in diagnosis.bounds if not b.wasted]
    if not useful:
        return f"What limits it now: {diagnosis_line(diagnosis)}; no class of change reaches 1.05x more."
    most = max(useful, key=lambda b: b.speedup)
    return (
        f"What limits it now: {diagnosis_line(diagnosis)}; {most.change} could give at most {most.speedup:.2f}x more."
    )


def _in_the_way(run: Run) -> str:
    goal, best = run.goal, run.best_trial
    measured = best.measured
    assert measured is not None
    parts = []
    if goal.rate_per_s is not None and measured.throughput_per_s <= goal.rate_per_s:
        parts.append(f"{goal.rate_per_s:g}/s arrive, at most {measured.throughput_per_s:.4g}/s are served")
    if goal.p99_s is not None:
        p99 = measured.latency_s.p99
        known = "not known" if p99 is None else f"{p99 * 1e3:.3g} ms at best"
        parts.append(f"p99 is {known}, {goal.p99_s * 1e3:.3g} ms is asked")
    if goal.max_size_bytes is not None:
        parts.append(f"the size is {measured.size_bytes:,} B, {goal.max_size_bytes:,} B is asked")
    if goal.max_memory_bytes is not None:
        parts.append(f"peak memory is {measured.peak_memory_bytes:,} B, {goal.max_memory_bytes:,} B is asked")
    if goal.min_quality is not None and best.quality is not None:
        parts.append(f"{best.quality.metric} is {_number(best.quality.value)}, {goal.min_quality:g} is asked")
    return "; ".join(parts) + "."


def _first(plans: Sequence[str]) -> str:
    more = f"; and {len(plans) - _SHOWN} more" if len(plans) > _SHOWN else ""
    return "; ".join(plans[:_SHOWN]) + more


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
