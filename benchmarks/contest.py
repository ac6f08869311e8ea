"""One case of ``peers``: a workload and an objective, every arm built, scored and measured beside the tuned point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks import arms, common, foreign, rounds
from ironlaw import api, quantities
from ironlaw.bench import Bench, Subject
from ironlaw.forms import files
from ironlaw.records import Artefact, Form, Gain, Goal, ModelFile, Objective, Run
from ironlaw.store import Store

TUNE_S = 240.0
TUNED = "tuned"
UNKNOWN_WORKER_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One model with its budget."""

    spec: str
    max_drop: str = "1pt"
    min_quality: float | None = None

    def goal(self, objective: Objective) -> Goal:
        budget = quantities.budget(self.max_drop, "budget")
        return Goal(objective=objective, max_drop=budget, min_quality=self.min_quality)


@dataclass(kw_only=True)
class Arm:
    """One arm in one case. ``against`` is how many times better the tuned point is than it."""

    name: str
    subject: Subject | None = None
    within: bool = False
    quality: float | None = None
    reason: str = ""
    gain: Gain | None = None
    against: Gain | None = None

    @property
    def artefact(self) -> Artefact | None:
        """What can be measured; None when it was not built."""
        if self.subject is None or self.subject.failure is not None:
            return None
        return self.subject.artefact


@dataclass(kw_only=True)
class Case:
    """``arms`` without the tuned point, whose gain over the eager baseline is ``gain``."""

    name: str
    arms: list[Arm]
    floor: float = 1.0
    label: str = ""
    gain: Gain | None = None
    quality: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> Arm | None:
        """The arm within the budget that the tuned point is least ahead of."""
        rivals = [(arm.against.median, arm) for arm in self.arms if arm.within and arm.against is not None]
        return min(rivals, key=lambda pair: pair[0])[1] if rivals else None


def held(name: str, workload: Workload, objective: Objective, options: common.Options) -> Case:
    """Tune, build and score all arms, measure them together."""
    home, goal = options.home / "peers", workload.goal(objective)
    tuned = None if options.quick else tuned_run(name, workload, objective, home, options)
    with rounds.session(workload.spec, goal, home, options.talk, ceilings=not options.quick) as made:
        bench = made.bench
        batch = tuned.best_trial.execution.batch if tuned else bench.base.execution.batch
        case = Case(name=name, arms=[])
        if tuned is not None:
            best = tuned.best_trial
            case.label, case.quality = best.label, best.quality.value if best.quality else None
        for label, steps in arms.arms(arms.openvino_precision()).items():
            if not options.quick or label in arms.QUICK:
                options.talk(f"{name}: {label}")
                case.arms.append(
                    _of_levers(bench, goal, label, arms.at_batch(steps, batch, bench.base.execution.batch))
                )
        if not options.quick:
            case.arms += [_of_peer(bench, goal, label, batch, home, options) for label in foreign.PEERS]
        _measure(bench, case, tuned, objective, options)
    return case


def tuned_run(name: str, workload: Workload, objective: Objective, home: Path, options: common.Options) -> Run:
    """The run of ``tune``, made once for each commit: a resumed benchmark does not give it more time."""
    key = f"peers:{name}:{common.commit()}:{options.time_limit_s or TUNE_S:g}"
    with Store(home) as store:
        known = store.fact(key, "run")
        if known is not None:
            return store.run(known["id"])
    api.machine(home=home, quick=True, talk=options.talk)
    run = api.tune(
        workload.spec,
        objective=str(objective),
        max_drop=workload.max_drop,
        min_quality=workload.min_quality,
        time_limit=options.time_limit_s or TUNE_S,
        home=home,
        talk=options.talk,
    )
    with Store(home) as store:
        store.keep(key, "run", {"id": run.id})
    return run


def _of_levers(bench: Bench, goal: Goal, name: str, steps: arms.Steps) -> Arm:
    return _scored(bench, goal, Arm(name=name, subject=rounds.built(bench, rounds.plan_of(steps))))


def _of_peer(bench: Bench, goal: Goal, name: str, batch: int, home: Path, options: common.Options) -> Arm:
    """The model that the peer made, as an artefact of ours on the runtime that it is for."""
    peer = foreign.PEERS[name]
    options.talk(f"{name}: in an environment of its own")
    try:
        source = _source(bench, peer.takes)
        out = home / "foreign" / f"{bench.base.snapshot.digest[:16]}-{name.replace(' ', '-')}"
        made = foreign.produce(peer, source, Path(bench.base.snapshot.folder) / files.EXAMPLE, out)
    except foreign.PeerFailure as failure:
        return Arm(name=name, reason=str(failure))
    model = ModelFile(form=peer.gives, path=str(made), digest=files.digest_of(made))
    run = dataclasses.replace(bench.base.execution, target=peer.target, batch=batch)
    base = dataclasses.replace(bench.base, model=model, execution=run)
    theirs = Bench(
        bench.store, bench.workload, bench.evaluate, bench.rebuild, base, f"{name} {model.digest}", bench.limits,
        options.talk,
    )  # fmt: skip
    theirs.build(theirs.baseline)
    return _scored(bench, goal, Arm(name=name, subject=theirs.baseline))


def _source(bench: Bench, form: str) -> Path:
    """The workload's model in the form that a peer takes. Raises PeerFailure when there is no way there."""
    if form == bench.base.model.form:
        return Path(bench.base.model.path)
    subject = rounds.built(bench, rounds.plan_of(arms.arms("fp32")[arms.ONNX_ARM]))
    if form != Form.ONNX or subject.candidate is None:
        raise foreign.PeerFailure(f"the model could not be brought into the form {form}")
    return Path(subject.candidate.model.path)


def _scored(bench: Bench, goal: Goal, arm: Arm) -> Arm:
    subject = arm.subject
    assert subject is not None
    bench.score(subject)
    if subject.failure is not None:
        arm.reason = f"{subject.failure.outcome}: {subject.failure.reason}"
    else:
        arm.within, arm.quality, arm.reason = rounds.quality(bench, goal, subject)
    return arm


def _measure(bench: Bench, case: Case, tuned: Run | None, objective: Objective, options: common.Options) -> None:
    """All arms with the tuned point, in as few groups of rounds as memory allows."""
    artefacts = {arm.name: arm.artefact for arm in case.arms if arm.artefact is not None}
    always = []
    before = tuned.baseline.measured if tuned else None
    if tuned is not None and tuned.best_trial.artefact is not None:
        artefacts[TUNED], always = tuned.best_trial.artefact, [TUNED]
    worker_bytes = before.peak_memory_bytes if before else UNKNOWN_WORKER_BYTES
    groups = rounds.groups_of(list(artefacts), always, worker_bytes, psutil.virtual_memory().available)
    for group in groups:
        taken = rounds.measured(
            bench,
            {name: artefacts[name] for name in group},
            launches=rounds.launches_of(options.quick, options.launches),
            effort=rounds.effort_of(options.quick),
            label=f"peers {objective}",
        )
        _read(case, taken, group, objective)
    if len(groups) > 1:
        case.notes.append(
            f"{case.name}: measured in {len(groups)} groups, each with the tuned point and both baselines"
        )


def _read(case: Case, taken: rounds.Taken, group: list[str], objective: Objective) -> None:
    floor = rounds.floor(taken.rounds, objective)
    case.floor = max(case.floor, floor)
    tuned = TUNED in group and TUNED not in taken.failed
    if tuned:
        case.gain = rounds.ratio(taken.rounds, TUNED, "baseline", objective, floor=floor)
    for arm in case.arms:
        if arm.name in taken.failed:
            arm.within, arm.reason = False, taken.failed[arm.name]
        elif arm.name in group:
            arm.gain = rounds.ratio(taken.rounds, arm.name, "baseline", objective, floor=floor)
            arm.against = rounds.ratio(taken.rounds, TUNED, arm.name, objective, floor=floor) if tuned else None


def rows(case: Case) -> list[dict[str, common.Cell]]:
    """The arms of a case as rows, the tuned point last."""
    found = [_row(case.name, arm) for arm in case.arms]
    if case.label:
        own = Arm(name=TUNED, within=True, quality=case.quality, reason=case.label, gain=case.gain)
        found.append(_row(case.name, own))
    return found


def _row(case: str, arm: Arm) -> dict[str, common.Cell]:
    gain, against = arm.gain, arm.against
    settled: Mapping[bool, str] = {True: "yes", False: "no"}
    return {
        "case": case,
        "arm": arm.name,
        "gain": gain.median if gain else None,
        "low": gain.low if gain else None,
        "high": gain.high if gain else None,
        "settled": settled[gain.settled] if gain else None,
        "within": arm.within,
        "quality": arm.quality,
        "tuned/arm": against.median if against else None,
        "why": arm.reason,
    }
