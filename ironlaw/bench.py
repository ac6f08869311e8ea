"""Finds out what is not yet known about a candidate: its build, its launches, its scores, its operators.

Everything found is a fact in the store under the candidate's key, so that a run that is killed goes on
where it was. Work happens in child processes under the machine-wide lock; what fails there is an outcome of
that candidate. The bench decides nothing: what to try is the search's business, what it means the judge's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ironlaw import metrics
from ironlaw.measure.lock import machine_lock
from ironlaw.measure.paired import BASELINE, SELF, Effort, Launch, round_of
from ironlaw.measure.predictor import Predictor
from ironlaw.measure.process import Child, WorkerFailure
from ironlaw.measure.profiles import profiled
from ironlaw.measure.summary import launch_data, launch_from
from ironlaw.plan.space import Plan
from ironlaw.records import (
    Artefact,
    Candidate,
    Certificate,
    Inspection,
    Ledger,
    Op,
    Outcome,
    Prediction,
    UserError,
    digest_of,
    exactly,
    from_data,
    to_data,
)
from ironlaw.scored import Scored, scores_data, scores_digest, scores_from
from ironlaw.store import Store
from ironlaw.verify.stopping import stopper
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.rebuild import Rebuild
from ironlaw.workloads.source import blamed
from ironlaw.workloads.training import Training

DISK_FULL = ("Errno 28", "Errno 30", "No space left", "Read-only file system")
BASELINE_PLAN = Plan(
    steps=(), predicted=Prediction(speedup=exactly(1.0), basis="the baseline"), cost_s=0.0, family="baseline"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Of each child process."""

    trial_s: float = 300.0
    memory_bytes: int | None = None


@dataclass(kw_only=True, slots=True)
class Subject:
    """A plan and what is known of it so far."""

    plan: Plan
    key: str
    candidate: Candidate | None = None
    artefact: Artefact | None = None
    launches: list[Launch] = field(default_factory=list)
    scores: Scored | None = None
    decisions: list[np.ndarray] = field(default_factory=list)
    certificate: Certificate | None = None
    failure: WorkerFailure | None = None
    spent_s: float = 0.0
    worked: bool = False


class Bench:
    """Works for one run of the loop on one workload.

    ``talk`` gets a line of progress for people; ``context`` is what all keys hold. The baseline must be measured
    first: the keys of all others hold the digest of its scores, so that another evaluate function starts anew.
    ``waited_s`` is what other runs' turns on the machine took, ``score_s`` what scoring the baseline took.
    """

    def __init__(
        self,
        store: Store,
        workload: Inference | Training,
        evaluate: Callable[..., Any] | None,
        rebuild: Rebuild | None,
        base: Candidate,
        machine_digest: str,
        limits: Limits,
        talk: Callable[[str], None],
    ) -> None:
        self.store, self.workload, self.rebuild, self.base = store, workload, rebuild, base
        self.evaluate, self.limits, self._talk = evaluate, limits, talk
        run = to_data(base.execution)
        self.context: tuple[str, ...] = (base.snapshot.digest, machine_digest, str(sorted(run.items(), key=str)))
        self.waited_s = 0.0
        self.score_s = 0.0
        self.reference: list[list[metrics.Array]] | None = None
        self.baseline = self._known(BASELINE_PLAN)
        self.self_launches = [launch_from(d) for d in store.facts(self.baseline.key, f"self{self._at_rate}")]

    # ------------------------------------------------------------ the steps

    def subject(self, plan: Plan) -> Subject:
        """The plan with all that the store knows of it."""
        return self._known(plan)

    def start(self) -> None:
        """Build and score the baseline; raises UserError when it cannot run or does not score the same twice."""
        baseline = self.baseline
        self.build(baseline)
        if baseline.failure is None:
            self._score(baseline)
        if baseline.failure is not None:
            raise UserError(
                f"workload {self.base.snapshot.name!r}",
                f"the baseline does not run: {baseline.failure.reason}",
                "Run the model on its example yourself, then look at this message again.",
            ) from baseline.failure
        self.context = (*self.context, self._scores_text())

    def build(self, subject: Subject) -> None:
        """Apply the plan's levers and export the artefact."""
        if subject.artefact is not None or subject.failure is not None:
            return
        folder = self.store.folder("artefacts") / subject.key
        start = time.monotonic()
        try:
            with self._turn(), Child("ironlaw.builder", **self._child_limits()) as child:
                answer = child.ask(
                    "build",
                    timeout_s=self.limits.trial_s,
                    base=to_data(self.base),
                    steps=[step.request() for step in subject.plan.steps],
                    root=str(self.store.folder("work")),
                    folder=str(folder),
                )
        except WorkerFailure as failure:
            self._fail(subject, failure, start)
            return
        subject.candidate = from_data(Candidate, answer["candidate"])
        subject.artefact = from_data(Artefact, answer["artefact"])
        self._spent(subject, start)
        self.store.keep(subject.key, "build", {**answer, "seconds": subject.spent_s})

    def measure(self, subjects: list[Subject], effort: Effort) -> None:
        """One more launch of each subject, of the baseline and of the baseline against itself."""
        ready = {s.key: s for s in subjects if s.failure is None and s.artefact is not None}
        assert self.baseline.artefact is not None
        start = time.monotonic()
        with self._turn():
            try:
                results = round_of(
                    self.baseline.artefact,
                    {key: subject.artefact for key, subject in ready.items() if subject.artefact},
                    effort.at_rate(self.base.goal.rate_per_s),
                    memory_limit_bytes=self.limits.memory_bytes,
                    time_limit_s=self.limits.trial_s,
                )
            except WorkerFailure as failure:
                raise UserError(
                    "baseline", f"stopped working while it was measured: {failure.reason}",
                    "Free memory on this machine, or raise --trial-limit and --memory-limit.",
                ) from failure  # fmt: skip
        for key, result in results.items():
            subject = ready.get(key, self.baseline)
            if isinstance(result, WorkerFailure):
                self._fail(subject, result, start)
            elif key == SELF:
                self.self_launches.append(result)
                self.store.keep(self.baseline.key, f"self{self._at_rate}", launch_data(result))
            else:
                subject.launches.append(result)
                self.store.keep(subject.key, f"launch{self._at_rate}", launch_data(result))
            if key not in (SELF, BASELINE):
                self._spent(subject, start, share=len(ready))

    def score(self, subject: Subject) -> None:
        """Evaluate the artefact on its runtime, and take its certificate."""
        if subject.scores is None and subject.failure is None:
            self._score(subject)

    def ledger(self, candidate: Candidate, cache_bytes: int | None) -> Ledger:
        """The counting pass over the model that the candidate holds, for a cache of that size."""
        key = digest_of((candidate.snapshot.digest, candidate.model.digest, candidate.execution.batch, cache_bytes))
        known = self.store.fact(key, "ledger")
        if known is None:
            with Child("ironlaw.builder", **self._child_limits()) as child:
                answer = child.ask(
                    "ledger",
                    timeout_s=self.limits.trial_s,
                    model=to_data(candidate.model),
                    snapshot=to_data(candidate.snapshot),
                    batch=candidate.execution.batch,
                    cache_bytes=cache_bytes,
                )
            known = answer["ledger"]
            self.store.keep(key, "ledger", known)
        return from_data(Ledger, known)

    def profile(self, subject: Subject) -> tuple[Op, ...]:
        """Operators with their times; empty when the runtime cannot say. A pass of its own."""
        if self.store.fact(subject.key, "profile") is None:
            self._look_at(subject)
        return tuple(from_data(Op, op) for op in self.store.fact(subject.key, "profile") or ())

    def inspect(self, subject: Subject) -> Inspection | None:
        """What lies inside the loaded model; None when its runtime has no way to look, or the look failed."""
        if self.store.fact(subject.key, "inspection") is None:
            self._look_at(subject)
        seen = (self.store.fact(subject.key, "inspection") or {}).get("seen")
        return None if seen is None else from_data(Inspection, seen)

    def disagreements(self, subject: Subject) -> tuple[int, int] | None:
        """(examples decided otherwise than by the baseline, examples); None when outputs are no decisions."""
        ours, theirs = self.baseline.decisions, subject.decisions
        if not ours or [len(a) for a in ours] != [len(b) for b in theirs]:
            return None
        differing = sum(int((a != b).sum()) for a, b in zip(ours, theirs, strict=True))
        return differing, sum(len(a) for a in ours)

    # ------------------------------------------------------------ details

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """This run's turn on the machine; waiting for it is not counted as spent."""
        with machine_lock(self._talk) as waited_s:
            self.waited_s += waited_s
            yield

    def _look_at(self, subject: Subject) -> None:
        """Profile and then inspect in one process: the second pass changes how torch runs, the first is timed."""
        assert subject.artefact is not None
        with self._turn(), self._predictor(subject.artefact) as predictor:
            self.store.keep(subject.key, "profile", profiled(predictor, [launch.call_s for launch in subject.launches]))
            try:
                seen = predictor.inspect()
            except WorkerFailure as failure:
                self._talk(f"{subject.plan.label} was not inspected: {failure.reason}")
                seen = None
        self.store.keep(subject.key, "inspection", {"seen": seen})

    def _known(self, plan: Plan) -> Subject:
        subject = Subject(plan=plan, key=plan.key(*self.context))
        if build := self.store.fact(subject.key, "build"):
            built = from_data(Candidate, build["candidate"])
            subject.candidate = dataclasses.replace(built, goal=self.base.goal)  # it was perhaps built for another
            subject.artefact = from_data(Artefact, build["artefact"])
            subject.spent_s = build["seconds"]
        if subject.artefact is not None and not self.store.home.joinpath(subject.artefact.folder).exists():
            subject.candidate = subject.artefact = None
        failure = self.store.fact(subject.key, "failure")
        if failure and not self._now_allowed(failure):
            subject.failure = WorkerFailure(Outcome(failure["outcome"]), failure["reason"])
        subject.launches = [launch_from(data) for data in self.store.facts(subject.key, f"launch{self._at_rate}")]
        self._know_scores(subject)
        return subject

    def _know_scores(self, subject: Subject) -> None:
        scored = self.store.fact(subject.key, "scores") or self.store.fact(subject.key, self._stopped)
        if scored:
            subject.scores = scores_from(scored["scores"])
            subject.decisions = [np.asarray(d) for d in scored["decisions"]]
            subject.certificate = from_data(Certificate, scored["certificate"])

    def _score(self, subject: Subject) -> None:
        assert subject.artefact is not None
        start = time.monotonic()
        try:
            with self._turn(), self._predictor(subject.artefact) as predictor:
                subject.scores = self._evaluate(predictor, first=subject is self.baseline)
                subject.decisions = predictor.decisions
                subject.certificate = from_data(Certificate, predictor.certificate())
        except WorkerFailure as failure:
            self._fail(subject, failure, start)
            return
        except UserError:
            raise
        except Exception as error:
            if subject is self.baseline:
                raise blamed(error, "evaluate", "raises") from error
            words = f"evaluate raises on it: {type(error).__name__}: {error}"
            self._fail(subject, WorkerFailure(Outcome.CRASHED, words), start)
            return
        self._spent(subject, start)
        if subject is self.baseline:  # evaluated anew in every run: its scores are part of all other keys
            self.score_s = time.monotonic() - start
            return
        scored = {
            "scores": scores_data(subject.scores),
            "decisions": [d.tolist() for d in subject.decisions],
            "certificate": to_data(subject.certificate),
        }
        self.store.keep(subject.key, "scores" if self._complete(subject) else self._stopped, scored)

    def _scores_text(self) -> str:
        """What all keys but the baseline's hold of its scores."""
        return scores_digest(self.baseline.scores)

    def _complete(self, subject: Subject) -> bool:
        """Whether every example was scored: a pass that stopped early says nothing under a looser budget."""
        ours, whole = subject.scores, self.baseline.scores
        if isinstance(ours, metrics.Scores) and isinstance(whole, metrics.Scores):
            return len(ours.values) == len(whole.values)
        return True

    @property
    def _at_rate(self) -> str:
        """Part of the names of facts: launches under arrivals say nothing of calls back to back."""
        rate = self.base.goal.rate_per_s
        return "" if rate is None else f" at {rate:g}/s"

    @property
    def _stopped(self) -> str:
        goal = self.base.goal
        return f"scores stopped at {goal.max_drop}, {goal.min_quality}"

    def _evaluate(self, predictor: Predictor, *, first: bool) -> metrics.Scores | metrics.Scalar:
        assert self.rebuild is not None
        rebuild = self.rebuild

        def predict(*args: Any, **kwargs: Any) -> Any:
            arrays = rebuild.inputs_to_arrays(args, kwargs)
            return rebuild.outputs_from_arrays(predictor(arrays), [args, kwargs])

        evaluate, workload = self.evaluate, self.workload
        assert evaluate is not None
        assert isinstance(workload, Inference)
        if first:
            self.reference = metrics.reference_of(evaluate, predict)
            predictor.decisions.clear()
        whole = self.baseline.scores
        return metrics.score(
            evaluate,
            predict,
            metric=workload.metric,
            higher_is_better=workload.higher_is_better,
            reference=self.reference,
            stop=stopper(whole, self.base.goal) if isinstance(whole, metrics.Scores) and not first else None,
        )

    def _predictor(self, artefact: Artefact) -> Predictor:
        return Predictor(artefact, memory_limit_bytes=self.limits.memory_bytes, time_limit_s=self.limits.trial_s)

    def _child_limits(self) -> dict[str, Any]:
        return {"memory_limit_bytes": self.limits.memory_bytes}

    def _fail(self, subject: Subject, failure: WorkerFailure, start: float) -> None:
        if any(words in failure.reason for words in DISK_FULL):
            raise UserError(
                str(self.store.home), f"cannot be written ({failure.reason})",
                "Free some space or set IRONLAW_HOME to a folder on another disk; what was finished is kept.",
            )  # fmt: skip
        subject.failure = failure
        self._spent(subject, start)
        why = {"outcome": str(failure.outcome), "reason": failure.reason}
        self.store.keep(subject.key, "failure", {**why, **dataclasses.asdict(self.limits)})

    def _now_allowed(self, failure: dict[str, Any]) -> bool:
        """Whether it failed at a limit that has been raised since."""
        if failure["outcome"] == Outcome.HUNG:
            return bool(self.limits.trial_s > failure["trial_s"])
        had, have = failure["memory_bytes"], self.limits.memory_bytes
        return bool(failure["outcome"] == Outcome.OUT_OF_MEMORY and had and (have is None or have > had))

    def _spent(self, subject: Subject, start: float, *, share: int = 1) -> None:
        subject.spent_s += (time.monotonic() - start) / share
        subject.worked = True
