"""The bench for jobs that train: the same facts in the same store, a call being one step of the job.

Speed is measured as for models, in blocks that hold whole epochs where those are short, since beginning one is part of
the cost of a loader. Quality asks first whether the same is computed: a few steps from the same weights must end at the
same parameters. Only where they do not, whole jobs are trained, some seeds each, and evaluated in the parent.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw import registry, training_artefact, training_diagnosis
from ironlaw.bench import Bench, Limits, Subject
from ironlaw.measure.paired import Effort, Unit
from ironlaw.measure.process import WorkerFailure
from ironlaw.plan.space import Plan
from ironlaw.records import Candidate, Certificate, Diagnosis, Machine, Outcome, from_data, to_data
from ironlaw.store import Store
from ironlaw.verify.trained import Trained
from ironlaw.workloads.configure import DECODED
from ironlaw.workloads.parcel import FILE
from ironlaw.workloads.source import blamed
from ironlaw.workloads.training import Training

TRAJECTORY_STEPS = 8
SEEDS, LEAST_SEEDS = 5, 3
EPOCHS_A_BLOCK = 1.02
SHORTEST_S, LONGEST_S = 0.3, 2.0
"""Of a block; an epoch that is longer begins rarely enough to be left out."""
FEW_BLOCKS = 6


class TrainingBench(Bench):
    """Works for one run of the loop on one training job; ``base.snapshot.folder`` holds the packed job."""

    def __init__(
        self,
        store: Store,
        training: Training,
        base: Candidate,
        machine: Machine,
        machine_digest: str,
        limits: Limits,
        talk: Callable[[str], None],
        *,
        judged_by: str,
    ) -> None:
        self.training, self.machine, self._judged_by = training, machine, judged_by
        super().__init__(store, training, training.evaluate, None, base, machine_digest, limits, talk)
        self.epoch_s = 0.0

    @property
    def job(self) -> Path:
        """The packed job."""
        return Path(self.base.snapshot.folder) / FILE

    def start(self) -> None:
        """Also diagnose the baseline, since how long an epoch takes says how long to measure."""
        super().start()
        found = self.examined(self.baseline)
        batches = found.loader.batches if found.loader else None
        self.epoch_s = found.total_s * (batches or 0)

    def build(self, subject: Subject) -> None:
        """Apply the plan's levers, decode the data where one asks for it, and write what ships."""
        if subject.artefact is not None or subject.failure is not None:
            return
        start = time.monotonic()
        try:
            candidate = self._applied(subject.plan)
            if candidate.execution.option("loader.decoded"):
                self._decode(candidate)
            folder = self.store.folder("artefacts") / subject.key
            artefact = training_artefact.write(candidate, folder, weights_bytes=self.base.snapshot.weights_bytes)
        except WorkerFailure as failure:
            self._fail(subject, failure, start)
            return
        subject.candidate, subject.artefact = candidate, artefact
        self._spent(subject, start)
        built = {"candidate": to_data(candidate), "artefact": to_data(artefact), "seconds": subject.spent_s}
        self.store.keep(subject.key, "build", built)

    def measure(self, subjects: list[Subject], effort: Effort) -> None:
        super().measure(subjects, self.longer(effort))

    def longer(self, effort: Effort) -> Effort:
        """The same effort in blocks that hold a whole epoch, where it is short enough."""
        block_s = min(LONGEST_S, max(SHORTEST_S, EPOCHS_A_BLOCK * self.epoch_s))
        more = block_s / effort.block_s
        return dataclasses.replace(
            effort, block_s=block_s, round_s=effort.round_s * more, cycles=min(effort.cycles, FEW_BLOCKS)
        )

    def examined(self, subject: Subject) -> Diagnosis:
        """Where the time of a step of that subject goes; worked for once."""
        known = self.store.fact(subject.key, "step diagnosis")
        if known is None:
            assert subject.candidate is not None
            effort = training_diagnosis.Effort()
            if subject is not self.baseline:
                effort = dataclasses.replace(effort, launches=2, turns_s=2.0)
            found = training_diagnosis.examined_job(
                self.job, self.machine, subject.candidate.execution, self._talk, effort
            )
            known = to_data(found.diagnosis)
            self.store.keep(subject.key, "step diagnosis", known)
        return from_data(Diagnosis, known)

    # ------------------------------------------------------------ details

    def _applied(self, plan: Plan) -> Candidate:
        candidate = self.base
        for step in plan.steps:
            lever = registry.levers()[step.lever]
            candidate, _ = lever.apply(candidate, lever.Settings(**dict(step.settings)))
        return candidate

    def _decode(self, candidate: Candidate) -> None:
        folder = Path(candidate.snapshot.folder) / DECODED
        if folder.exists():
            return
        self._talk("read every sample once and keep them as arrays")
        with self._turn(), self._unit(self.baseline) as unit:
            unit.ask_first("decode", job=str(self.job), folder=str(folder))

    def _score(self, subject: Subject) -> None:
        start = time.monotonic()
        try:
            with self._turn():
                trained = self._compared(subject)
                with self._unit(subject) as unit:
                    unit.load(warm_limit_s=0.0)
                    subject.certificate = from_data(Certificate, unit.ask_first("certify")["certificate"])
                if not trained.same:
                    trained = self._evaluated(subject, trained)
        except WorkerFailure as failure:
            self._fail(subject, failure, start)
            return
        subject.scores = trained
        self._spent(subject, start)
        if subject is not self.baseline:
            scored = {"scores": to_data(trained), "decisions": [], "certificate": to_data(subject.certificate)}
            self.store.keep(subject.key, self._scored, scored)

    @property
    def _scored(self) -> str:
        """Another ``evaluate`` makes another fact."""
        return f"trained, judged by {self._judged_by}"

    def _know_scores(self, subject: Subject) -> None:
        if scored := self.store.fact(subject.key, self._scored):
            subject.scores = from_data(Trained, scored["scores"])
            subject.certificate = from_data(Certificate, scored["certificate"])

    def _scores_text(self) -> str:
        """The baseline's weights and batches are in the snapshot's digest: nothing more tells its scores."""
        return self._judged_by

    def _compared(self, subject: Subject) -> Trained:
        """How far the trajectory ends from the baseline's: on its own batches, and on the baseline's."""
        if subject is self.baseline:
            self._steps(subject, own=True)
            return Trained(apart=0.0, apart_on_same=0.0)
        before, reference = self._steps(self.baseline, own=True)
        way = float(np.linalg.norm(reference - before)) or 1.0
        apart = [float(np.linalg.norm(self._steps(subject, own=own)[1] - reference)) / way for own in (True, False)]
        return Trained(apart=apart[0], apart_on_same=apart[1])

    def _steps(self, subject: Subject, *, own: bool) -> tuple[np.ndarray, np.ndarray]:
        """Parameters before and after a few steps; those of the baseline are kept beside the job."""
        folder = Path(self.base.snapshot.folder)
        known = folder / f"trajectory-{self.base.execution.threads}.npz"
        batches = folder / "batches.pkl"
        with tempfile.TemporaryDirectory(dir=folder) as private:
            out = known if subject is self.baseline else Path(private) / "steps.npz"
            if not (out.exists() and batches.exists()):
                with self._unit(subject) as unit:
                    request = {"steps": TRAJECTORY_STEPS, "batches": str(batches), "own": own, "out": str(out)}
                    unit.ask_first("trajectory", artefact=to_data(subject.artefact), **request)
            with np.load(out) as found:
                return found["before"], found["after"]

    def _evaluated(self, subject: Subject, trained: Trained) -> Trained:
        """With the values of whole jobs, one a seed; without where there is no ``evaluate`` or no time for it."""
        if self.evaluate is None:
            return trained
        one_s = self.training.steps * self._step_s()
        seeds = min(SEEDS, int(self.limits.trial_s / one_s))
        if seeds < LEAST_SEEDS:
            note = f"training to the end takes about {one_s:.0f} s, and {LEAST_SEEDS} seeds more than --trial-limit"
            return dataclasses.replace(trained, note=note)
        base = self.baseline.scores
        assert isinstance(base, Trained)
        if len(base.values) < seeds:
            self.baseline.scores = base = dataclasses.replace(base, values=self._values(self.baseline, seeds))
        return dataclasses.replace(trained, values=self._values(subject, len(base.values)))

    def _step_s(self) -> float:
        launches = self.baseline.launches
        return max(launch.wall_s / launch.calls for launch in launches) if launches else 0.0

    def _values(self, subject: Subject, seeds: int) -> tuple[float, ...]:
        found: tuple[float, ...] = tuple(self.store.fact(subject.key, f"{self._scored}: values") or ())
        for seed in range(len(found), seeds):
            self._talk(f"train to the end: {subject.plan.label}, seed {seed + 1} of {seeds}")
            found = (*found, self._value(subject, seed))
            self.store.keep(subject.key, f"{self._scored}: values", found)
        return found

    def _value(self, subject: Subject, seed: int) -> float:
        from safetensors.torch import load_file

        with tempfile.TemporaryDirectory(dir=self.base.snapshot.folder) as private:
            out = str(Path(private) / "trained.safetensors")
            with self._unit(subject) as unit:
                request = {"steps": self.training.steps, "seed": seed, "out": out}
                unit.ask_first("train", artefact=to_data(subject.artefact), **request)
            model = copy.deepcopy(self.training.model)
            model.load_state_dict(load_file(out))
        assert self.evaluate is not None
        try:
            value = float(np.mean(np.asarray(self.evaluate(model.eval()), dtype=np.float64)))
        except Exception as error:
            raise blamed(error, "evaluate", "raises on a trained model") from error
        if not np.isfinite(value):
            raise WorkerFailure(Outcome.NOT_FINITE, f"evaluate gives {value} on the model of seed {seed}")
        return value

    @contextlib.contextmanager
    def _unit(self, subject: Subject) -> Iterator[Unit]:
        """A fresh process with the environment of that subject."""
        assert subject.artefact is not None
        limits: dict[str, Any] = {"memory_limit_bytes": self.limits.memory_bytes, "time_limit_s": self.limits.trial_s}
        unit = Unit(subject.artefact, **limits)
        try:
            unit.start()
            unit.started()
            yield unit
        finally:
            unit.close()
