"""From what the bench found to trials with verdicts, for one goal."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from ironlaw import metrics
from ironlaw.bench import Bench, Subject
from ironlaw.diagnose.energy import modelled
from ironlaw.measure.energy import counter
from ironlaw.measure.process import WorkerFailure
from ironlaw.measure.summary import fixed_gain, floor_of, measurement, memory_gain, paired_gain, ratios_of
from ironlaw.records import Change, Energy, Form, Gain, Goal, Ledger, Measurement, Objective, Outcome, Quality, Trial
from ironlaw.verify.outcome import limits_broken, verdict
from ironlaw.verify.quality import judge
from ironlaw.verify.scalar import judge_scalar
from ironlaw.verify.trained import Trained
from ironlaw.verify.trained import judge as judge_trained

TIMED = (Objective.LATENCY, Objective.THROUGHPUT)
UNKNOWN_ENERGY = "its energy is not known: neither counted nor, for this form of the model, modelled"
REACH = 0.9
"""A screened point goes on when it might be within this ratio of the best one."""
SCREEN_LAUNCHES = 2
"""A trial with fewer launches was only screened: its outcome says so unless it failed."""


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Verdicts on subjects of one bench under one goal; ``cache_bytes`` is what a modelled energy needs."""

    bench: Bench
    goal: Goal
    cache_bytes: int | None = None
    _energies: dict[str, Energy] = field(default_factory=dict, init=False)

    @property
    def floor(self) -> float:
        """The smallest gain that may be claimed here and now; 1 for what does not vary between launches."""
        if self.goal.objective == Objective.MEMORY:
            return memory_gain(self.bench.self_launches, self.bench.baseline.launches, self.bench.self_launches).floor
        return floor_of(self.bench.self_launches, self.goal.objective) if self._by_blocks else 1.0

    def screened(self, subject: Subject) -> float | None:
        """The gain as seen so far, for ranking only; None when nothing was measured.

        Halfway (log scale) between the paired ratios, which a round's own baseline launch sways, and the ratio to
        the baseline of all rounds, which a drift of the machine sways.
        """
        if subject.failure is not None or not subject.launches:
            return None
        if not self._by_blocks:
            gain = self._gain(subject, self._measured(subject))
            return None if gain is None else gain.median
        paired = statistics.mean(
            statistics.median(ratios_of(launch, self.goal.objective)) for launch in subject.launches
        )
        overall = math.log(self._speed(subject) / self._speed(self.bench.baseline))
        return math.exp((paired + overall) / 2)

    def _speed(self, subject: Subject) -> float:
        """Calls a second, examples for throughput, or examples a joule: the median over launches."""
        if self.goal.objective == Objective.LATENCY:
            return 1.0 / statistics.median(statistics.median(launch.latencies_s) for launch in subject.launches)
        assert subject.artefact is not None
        batch = subject.artefact.execution.batch
        if self.goal.objective == Objective.ENERGY:
            return batch * statistics.median(launch.calls / (launch.energy_j or 1.0) for launch in subject.launches)
        return batch * statistics.median(launch.calls / launch.wall_s for launch in subject.launches)

    def worth_scoring(self, gain: float) -> bool:
        """Quality is evaluated only for what is better."""
        return gain > 1.0

    def leading(self, subjects: Iterable[Subject], size: int) -> list[Subject]:
        """The points within the budget that are, or may be, the best; at most ``size``."""
        ranked = []
        for subject in subjects:
            gain = self.screened(subject)
            if gain and gain > 1.0 and self.may_win(self.trial(subject)):
                ranked.append((gain, subject))
        ranked.sort(key=lambda pair: -pair[0])
        return [subject for gain, subject in ranked[:size] if gain >= REACH * ranked[0][0]]

    def finalists(self, subjects: Iterable[Subject], size: int) -> list[Subject]:
        """What leads, and the point that the leader came from: a last step that gives nothing loses to it."""
        everything = list(subjects)
        found = self.leading(everything, size)
        origin = found[0].plan.steps[:-1] if found else ()
        parents = [s for s in everything if origin and s.plan.steps == origin and s not in found]
        return found + [s for s in parents if s.failure is None and s.launches]

    def may_win(self, trial: Trial) -> bool:
        """Within the quality budget and the limits; a percentile that so few calls cannot support is still open."""
        if trial.quality is None or not trial.quality.within or trial.measured is None:
            return False
        if trial.outcome == Outcome.CONSTRAINT and trial.measured.latency_s.p99 is None:
            others = dataclasses.replace(self.goal, p99_s=None)
            return not limits_broken(others, trial.measured) and self.goal.target in (None, trial.execution.target)
        return trial.outcome not in _USELESS

    def trial(self, subject: Subject) -> Trial:
        """The record of a subject with its verdict."""
        plan = subject.plan
        trial = Trial(
            id=subject.key,
            changes=subject.candidate.changes if subject.candidate else _planned(subject),
            execution=subject.candidate.execution if subject.candidate else self.bench.base.execution,
            outcome=Outcome.SCREENED_OUT,
            reason="not measured",
            predicted=plan.predicted if plan.steps else None,
            artefact=subject.artefact,
            certificate=subject.certificate,
            spent_s=subject.spent_s,
            reused=bool(plan.steps) and not subject.worked,
        )
        if subject.failure is not None:
            return dataclasses.replace(trial, outcome=subject.failure.outcome, reason=subject.failure.reason)
        if not subject.launches:
            return trial
        measured = self._measured(subject)
        gain, quality = self._gain(subject, measured), self._quality(subject)
        if gain is None:
            return dataclasses.replace(
                trial, outcome=Outcome.UNMEASURED, reason=UNKNOWN_ENERGY, measured=measured, quality=quality
            )
        outcome, reason = verdict(
            self.goal, trial.execution.target, trial.changes, gain, measured, quality, subject.certificate
        )
        if self._by_blocks and outcome == Outcome.UNSETTLED and len(subject.launches) <= SCREEN_LAUNCHES:
            outcome, reason = Outcome.SCREENED_OUT, f"about {gain.median:.2f}x in a short measurement"
        return dataclasses.replace(trial, outcome=outcome, reason=reason, measured=measured, gain=gain, quality=quality)

    def baseline(self) -> Trial:
        """The record of the baseline; it is its own reference."""
        subject = self.bench.baseline
        measured = self._measured(subject)
        quality = self._quality(subject)
        trial = self.trial(dataclasses.replace(subject, launches=[]))
        one = Gain(median=1.0, low=1.0, high=1.0, floor=self.floor, settled=True, launches=len(subject.launches))
        return dataclasses.replace(
            trial, outcome=Outcome.NOT_BETTER, reason="the baseline", measured=measured, gain=one, quality=quality
        )

    def _measured(self, subject: Subject) -> Measurement:
        assert subject.artefact is not None
        return measurement(subject.launches, subject.artefact, self._modelled(subject))

    def _modelled(self, subject: Subject) -> Energy | None:
        """Energy of a call from the ledger of what ships, where the user allows a model."""
        if not self.goal.allow_modelled_energy or subject.candidate is None:
            return None
        if subject.key not in self._energies:
            form = subject.candidate.model.form
            try:
                ledger = self.bench.ledger(subject.candidate, self.cache_bytes)
            except WorkerFailure:
                ledger = Ledger(ops=(), batch=1, source="not counted")
            self._energies[subject.key] = modelled(
                ledger, precision=subject.candidate.execution.precision, own_form=form != Form.OPENVINO
            )
        return self._energies[subject.key]

    @property
    def _by_blocks(self) -> bool:
        """Whether the objective is measured block by block, paired with the baseline's."""
        return self.goal.objective in TIMED or (self.goal.objective == Objective.ENERGY and counter() is not None)

    def _gain(self, subject: Subject, measured: Measurement) -> Gain | None:
        """None when the objective's quantity is not known for it."""
        if self._by_blocks:
            return paired_gain(subject.launches, self.goal.objective, floor=self.floor)
        before = self._measured(self.bench.baseline)
        if self.goal.objective == Objective.SIZE:
            return fixed_gain(before.size_bytes, measured.size_bytes)
        if self.goal.objective == Objective.ENERGY:
            one, two = before.energy_j.value, measured.energy_j.value
            return fixed_gain(one / before.batch, two / measured.batch) if one and two else None
        return memory_gain(subject.launches, self.bench.baseline.launches, self.bench.self_launches)

    def _quality(self, subject: Subject) -> Quality | None:
        ours, theirs = subject.scores, self.bench.baseline.scores
        if ours is None or theirs is None:
            return None
        if isinstance(ours, metrics.Scores) and isinstance(theirs, metrics.Scores):
            return judge(theirs, ours, self.goal)
        if isinstance(ours, Trained) and isinstance(theirs, Trained):
            job = self.bench.workload
            return judge_trained(job.metric or "value", job.higher_is_better, theirs, ours, self.goal)
        assert isinstance(ours, metrics.Scalar)
        assert isinstance(theirs, metrics.Scalar)
        differing, examples = self.bench.disagreements(subject) or (None, None)
        return judge_scalar(theirs, ours.value, self.goal, differing, examples)


def _planned(subject: Subject) -> tuple[Change, ...]:
    return tuple(
        Change(lever=step.lever, version=step.version, settings=step.settings, claims=()) for step in subject.plan.steps
    )


_USELESS = frozenset({Outcome.NO_OP, Outcome.FALLBACK, Outcome.CONSTRAINT, Outcome.OVER_BUDGET})
