"""The loop, in order: machine -> measure -> diagnose -> plan -> apply -> verify -> (repeat) -> frontier.

Deploying the chosen point is :mod:`ironlaw.deploy`. The loop holds no knowledge of levers or runtimes: the bench
finds facts, the space and the search say what to try, the judge says what it means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ironlaw import account, finished
from ironlaw.bench import Bench, Subject
from ironlaw.examining import examined
from ironlaw.finished import Finished
from ironlaw.judging import Judge
from ironlaw.measure.paired import FULL, SHORT
from ironlaw.measure.statistics import MIN_LAUNCHES
from ironlaw.plan.search import Search
from ironlaw.plan.space import Plan, Point, Space, baseline_point
from ironlaw.records import Diagnosis, Interval, Machine, Refusal, Trial

BASELINE_LAUNCHES = 3
SLOW_CALL_S = 0.3
"""A baseline whose call takes longer starts with two launches: each full round brings one more."""
VERDICT_LAUNCHES = 5
TOGETHER = 3
"""Candidates in one short round."""
FINALISTS = 4
RESERVED_SHARE, UNITS_MORE = 0.35, 2.0
"""Kept for full measurements of the finalists: this share of the time limit, or what their rounds would take, each
as long as the baseline's alone times this."""
TIME_LIMIT, NOTHING_LEFT = "the time limit", "nothing left that can beat the best by its prediction"


@dataclass(kw_only=True)
class Loop:
    """One run; ``talk`` gets lines for people. Ends by the time limit or when nothing left can win."""

    bench: Bench
    space: Space
    judge: Judge
    machine: Machine
    time_limit_s: float
    talk: Callable[[str], None]
    started: float = field(default_factory=time.monotonic)
    subjects: dict[str, Subject] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    search: Search = field(default_factory=Search)
    ended_because: str = ""
    diagnosis: Diagnosis | None = None
    expanded: set[str] = field(default_factory=set)
    repeated: Finished | None = None
    look: Callable[[Bench, Subject, Machine, Callable[[str], None]], Diagnosis] = examined
    round_s: float | None = None

    def run(self) -> None:
        """All steps up to the finalists' verdicts; the records are then made by :mod:`ironlaw.recording`."""
        self.measure_baseline()
        known = finished.known(self.bench, self.space)
        if known is not None:
            self._repeat(known)
            return
        self.explore()
        self.settle()
        if self.ended_because == NOTHING_LEFT:
            finished.keep(self.bench, self.space, self.found())

    def measure_baseline(self) -> None:
        """Measure the baseline against itself, then diagnose it and open the first plans."""
        self.talk("baseline: build, evaluate, measure against itself")
        self.bench.start()
        baseline = self.bench.baseline
        while len(self.bench.self_launches) < BASELINE_LAUNCHES:
            begun = time.monotonic() - self.bench.waited_s
            self.bench.measure([], FULL)
            self.round_s = time.monotonic() - self.bench.waited_s - begun
            if len(baseline.launches) > 1 and baseline.launches[-1].call_s > SLOW_CALL_S:
                break
        self.diagnosis = self.examine(baseline)
        assert baseline.candidate is not None
        self.search = Search(self.diagnosis.total_s, self.bench.score_s)
        self.talk(account.diagnosis_line(self.diagnosis))
        self._open(baseline_point(baseline.candidate, self.diagnosis))

    def explore(self) -> None:
        """Try plans in order of expected gain a second, short measurements first; extend what is good."""
        while batch := self.search.next_batch(TOGETHER, self.left_s - self.reserved_s):
            subjects = [self._built(plan) for plan in batch]
            fresh = [s for s in subjects if not s.launches and s.failure is None]
            if fresh:
                self.bench.measure(fresh, SHORT)
            for subject in subjects:
                self._learn(subject)
            self._extend_best()
        late = self.left_s < self.reserved_s or self.search.unaffordable
        self.ended_because = TIME_LIMIT if late else NOTHING_LEFT

    def settle(self) -> None:
        """Full measurements for the points that may be best, most for the closest race."""
        for launches, size in ((VERDICT_LAUNCHES - 2, FINALISTS), (VERDICT_LAUNCHES, FINALISTS - 1)):
            finalists = self.judge.finalists(self.subjects.values(), size)
            if finalists:
                self.talk("verify: " + "; ".join(s.plan.label for s in finalists))
            while short := [s for s in finalists if len(s.launches) < launches and s.failure is None]:
                if self.left_s < 0 and all(len(s.launches) >= MIN_LAUNCHES for s in short):
                    self.ended_because = TIME_LIMIT
                    return
                self.bench.measure(short, FULL)

    def examine(self, subject: Subject) -> Diagnosis:
        """Terms of the time of one measured subject."""
        return self.look(self.bench, subject, self.machine, self.talk)

    @property
    def reserved_s(self) -> float:
        """Of the time limit, for the finalists' verdicts; nothing while there is no finalist."""
        if self.search.best <= 1.0:
            return 0.0
        share_s = RESERVED_SHARE * self.time_limit_s
        return share_s if self.round_s is None else min(share_s, MIN_LAUNCHES * UNITS_MORE * self.round_s)

    @property
    def left_s(self) -> float:
        """Of the time limit; waiting for another run's turn to end is not counted."""
        return self.time_limit_s - (time.monotonic() - self.started - self.bench.waited_s)

    def trials(self) -> list[Trial]:
        return [self.judge.trial(subject) for subject in self.subjects.values()]

    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(Refusal(lever=lever, reason=reason) for lever, reason in self.refused.items())

    def found(self) -> Finished:
        """What the search did, as it stands."""
        return self.repeated or Finished(
            tried=tuple(subject.plan for subject in self.subjects.values()),
            dropped=_in_words(self.search.dropped),
            unaffordable=_in_words(self.search.unaffordable),
            refused=self.refusals(),
            ended_because=self.ended_because,
        )

    # ------------------------------------------------------------ details

    def _repeat(self, known: Finished) -> None:
        """The same points again; what is missing of one (its files were removed) is made anew."""
        self.talk("this search was finished before: its points are shown again")
        for plan in known.tried:
            self._built(plan)
        self.refused = {refusal.lever: refusal.reason for refusal in known.refused}
        self.repeated, self.ended_because = known, known.ended_because

    def _built(self, plan: Plan) -> Subject:
        subject = self.bench.subject(plan)
        self.subjects[subject.key] = subject
        predicted = plan.predicted.speedup
        self.talk(f"try {plan.label}: predicted {predicted.value:.2f}x [{predicted.low:.2f}, {predicted.high:.2f}]")
        self.bench.build(subject)
        return subject

    def _learn(self, subject: Subject) -> None:
        """Score what is faster, and tell the search."""
        gain = self.judge.screened(subject)
        if gain is not None and self.judge.worth_scoring(gain):
            self.bench.score(subject)
        trial = self.judge.trial(subject)
        within = None if trial.quality is None else self.judge.may_win(trial)
        self.search.observe(subject.plan, gain, within_budget=within)
        self.talk(account.trial_line(trial, gain))

    def _extend_best(self) -> None:
        """Open plans from the points that lead and were not extended yet."""
        for subject in self.judge.leading(self.subjects.values(), 2):
            gain = self.judge.screened(subject)
            if subject.key in self.expanded or gain is None or subject.candidate is None:
                continue
            self.expanded.add(subject.key)
            self.talk(f"go on from {subject.plan.label}")
            known = Interval(low=gain / 1.05, value=gain, high=gain * 1.05)
            point = Point(
                candidate=subject.candidate, steps=subject.plan.steps, diagnosis=self.examine(subject), gain=known
            )
            self._open(point)

    def _open(self, point: Point) -> None:
        plans, refusals = self.space.extend(point)
        self.search.add(plans)
        for refusal in refusals:
            where = "" if not point.steps else f" (after {' + '.join(str(s) for s in point.steps)})"
            self.refused.setdefault(refusal.lever, refusal.reason + where)


def _in_words(plans: Sequence[tuple[Plan, str]]) -> tuple[str, ...]:
    return tuple(f"{plan.label} ({why})" for plan, why in plans)
