"""A run and a diagnosis in plain sentences, the same on the page and in the terminal.

Why words first: a reader wants to know what limited it, what was done, what was gained at what
price, what limits it now and how far the bound is. Each sentence carries its interval; what was not
measured is said to be unknown, and a gain that is not proven is never called a gain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ironlaw.records import Bound, Certificate, Diagnosis, Finding, Goal, Objective, Outcome, Run, Term, Trial
from ironlaw.report import units

BETTER = {
    Objective.LATENCY: "faster",
    Objective.THROUGHPUT: "more throughput",
    Objective.SIZE: "smaller",
    Objective.MEMORY: "less memory",
    Objective.ENERGY: "less energy",
}

OUTCOME = {
    Outcome.IMPROVED: "improved",
    Outcome.NOT_BETTER: "not better",
    Outcome.OVER_BUDGET: "over budget",
    Outcome.CONSTRAINT: "limit not met",
    Outcome.NO_OP: "no-op",
    Outcome.FALLBACK: "fell back",
    Outcome.UNSETTLED: "unsettled",
    Outcome.SCREENED_OUT: "screened out",
    Outcome.UNMEASURED: "not measured",
    Outcome.BUILD_FAILED: "build failed",
    Outcome.CRASHED: "crashed",
    Outcome.HUNG: "hung",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.NOT_FINITE: "not finite",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """What a run found, in sentences. ``remaining`` is what is between the best point and the bound."""

    headline: str
    proof: str
    limited_by: str
    done: str
    gain: str
    quality: str
    limits_now: str
    remaining: tuple[str, ...]
    account: tuple[str, ...]
    warning: str

    def rows(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each question with its answer, in the order in which people ask."""
        rows = (
            ("What limited it", (self.limited_by,)),
            ("What was done", (self.done,)),
            ("Gain", (self.gain,)),
            ("Quality", (self.quality,)),
            ("What limits it now", (self.limits_now,)),
            ("Between here and the bound", self.remaining),
            ("Account", self.account),
        )
        return tuple((question, answer) for question, answer in rows if answer)


def summary(run: Run) -> Summary:
    """The summary of a run."""
    best = run.best_trial
    now = final_diagnosis(run)
    return Summary(
        headline=headline(run),
        proof=proof(run),
        limited_by=limited_by(run.diagnosis),
        done=_done(run, best),
        gain=_gain(run, best),
        quality=quality_sentence(run, best),
        limits_now=limited_by(now) if now else "unknown: the best point was not diagnosed.",
        remaining=tuple(remaining(now)) if now else ("Unknown: the best point was not diagnosed.",),
        account=run.account,
        warning="" if run.satisfied else f"No point satisfies the goal ({goal(run.goal)}). This is the best so far.",
    )


def final_diagnosis(run: Run) -> Diagnosis | None:
    """The diagnosis of the best point: the baseline's own where nothing beat it."""
    return run.diagnosis if run.best == run.baseline.id else run.best_diagnosis


def headline(run: Run) -> str:
    """The result in a few words: ``6.60× faster``."""
    best = run.best_trial
    if best.id == run.baseline.id:
        return "Nothing beat the baseline" if run.trials else "Only the baseline was measured"
    if best.gain is None:
        return "Gain unknown"
    claim = f"{units.ratio(best.gain.median)} {BETTER[run.goal.objective]}"
    return claim if best.gain.proven else f"{claim}, not proven"


def proof(run: Run) -> str:
    """The interval of the headline and the quality, in one line; the floor where nothing was gained."""
    best = run.best_trial
    if best.id == run.baseline.id or best.gain is None:
        return f"smallest gain that can be claimed here: {units.ratio(run.floor)}"
    text = f"95 % interval {units.ratio_range(best.gain.low, best.gain.high)}"
    if best.quality is None:
        return f"{text}, quality not evaluated"
    return f"{text}, {best.quality.metric} {units.quality_drop(best.quality, relative=run.goal.max_drop.relative)}"


def goal(wanted: Goal) -> str:
    """The goal as one line."""
    parts = [f"objective {wanted.objective}", f"quality drop at most {wanted.max_drop}"]
    if wanted.min_quality is not None:
        parts.append(f"quality at least {units.metric(wanted.min_quality)}")
    if wanted.rate_per_s is not None:
        parts.append(f"latency from arrival to answer at {wanted.rate_per_s:g} requests a second")
    if wanted.p99_s is not None:
        parts.append(f"p99 at most {units.seconds(wanted.p99_s)}")
    if wanted.max_size_bytes is not None:
        parts.append(f"size at most {units.size(wanted.max_size_bytes)}")
    if wanted.max_memory_bytes is not None:
        parts.append(f"memory at most {units.size(wanted.max_memory_bytes)}")
    if wanted.cores is not None:
        parts.append(f"{wanted.cores} cores")
    if wanted.target is not None:
        parts.append(f"on {wanted.target}")
    return ", ".join(parts)


def limited_by(diagnosis: Diagnosis) -> str:
    """The dominant term with its share and why, or that it is undetermined."""
    total = f"{units.seconds(diagnosis.total_s)} a {units.call_or_step(diagnosis)}"
    if diagnosis.dominant is None:
        return _sentence(f"Undetermined, in {total}", diagnosis.why)
    share = units.percent(diagnosis.share(diagnosis.dominant))
    return _sentence(f"{str(diagnosis.dominant).capitalize()}, {share} of {total}", diagnosis.why)


def quality_sentence(run: Run, trial: Trial) -> str:
    """Quality with interval, budget, and the smallest drop that this data can prove."""
    found = trial.quality
    if found is None:
        return "Not evaluated: unknown."
    if trial.id == run.baseline.id:
        return f"{found.metric} {units.metric(found.value)}, the baseline's own."
    relative = run.goal.max_drop.relative
    verdict = "within" if found.within else "not proven to be within"
    text = f"{found.metric} {units.metric(found.value)}, baseline {units.metric(found.baseline)}"
    text += f": {units.quality_drop(found, relative=relative)}; {verdict} the budget of {run.goal.max_drop}."
    if found.examples is not None and found.provable is not None:
        smallest = units.drop(found.provable, relative=relative, metric_value=found.baseline)
        text += f" The smallest drop that {found.examples:,} examples can rule out is {smallest}."
    return text


def remaining(diagnosis: Diagnosis) -> Iterable[str]:
    """What stands between a measured time and the bound: first the distance, then what works and what is wasted."""
    yield _distance(diagnosis)
    works = [_bound(b) for b in ranked(diagnosis.bounds) if not b.wasted]
    wasted = [_bound(b) for b in ranked(diagnosis.bounds) if b.wasted]
    if works:
        yield f"Would still help: {'; '.join(works)}."
    if wasted:
        yield f"Would be wasted: {'; '.join(wasted)}."


def ranked(bounds: tuple[Bound, ...]) -> list[Bound]:
    """The most promising first."""
    return sorted(bounds, key=lambda b: -b.speedup)


def killer(found: Finding) -> str:
    """The kind of a finding as words: ``page faults``."""
    return found.kind.replace("_", " ")


def terms_in_order(*diagnoses: Diagnosis | None) -> list[Term]:
    """Terms that any of the diagnoses has, the residual last, else in the order of the first that has them."""
    found = dict.fromkeys(t.term for d in diagnoses if d for t in d.terms)
    return sorted(found, key=lambda term: term == Term.RESIDUAL)


def certificate(value: Certificate | None) -> str:
    """``49 of 50 eligible operators converted``."""
    if value is None:
        return UNKNOWN_CERTIFICATE
    if not value.proven:
        return "not proven: what ran is unknown"
    return f"{value.converted} of {value.eligible} eligible operators converted"


UNKNOWN_CERTIFICATE = "none"


def _distance(diagnosis: Diagnosis) -> str:
    over, serial = diagnosis.overlapped_bound_s, diagnosis.serial_bound_s
    if over is None and serial is None:
        return "The bound is unknown: the ceilings or the operators could not be counted."
    text = f"{units.seconds(diagnosis.total_s)} measured. At the ceilings of this machine the same operations take "
    parts = []
    if over is not None:
        parts.append(f"{units.seconds_range(over)} if memory and arithmetic overlap")
    if serial is not None:
        parts.append(f"{units.seconds_range(serial)} if they do not")
    text += ", ".join(parts) + "."
    nearest = over or serial
    if nearest is not None and nearest.low > 0:
        left = diagnosis.total_s / nearest.low
        text += f" At most {units.ratio(max(left, 1.0))} is left without changing the work."
    return text


def _bound(bound: Bound) -> str:
    return f"{bound.change} (at most {units.ratio(bound.speedup)}, attacks {bound.attacks})"


def _done(run: Run, best: Trial) -> str:
    if best.id == run.baseline.id:
        return "Nothing: the baseline stays."
    return f"{best.label}, run by {best.execution.target}."


def _gain(run: Run, best: Trial) -> str:
    floor = f"The smallest gain that can be claimed here is {units.ratio(run.floor)}."
    if best.id == run.baseline.id:
        return f"None that can be proven. {floor}"
    if best.gain is None:
        return f"Unknown: not measured against the baseline. {floor}"
    found = best.gain
    text = f"{units.ratio(found.median)} {BETTER[run.goal.objective]}, 95 % interval "
    text += f"{units.ratio_range(found.low, found.high)} over {found.launches} launches"
    before, after = run.baseline.measured, best.measured
    if before and after:
        text += f"; latency p50 {units.seconds(before.latency_s.p50)} to {units.seconds(after.latency_s.p50)}"
    if not found.settled:
        text += "; unsettled, since other work on this machine took too much of it"
    elif not found.proven:
        text += "; not proven"
    return f"{text}. {floor}"


def _sentence(start: str, why: str) -> str:
    return f"{start}: {why.rstrip('.')}." if why else f"{start}."
