"""What was predicted, measured, judged and shipped: prediction to run."""

from __future__ import annotations

from dataclasses import dataclass, field

from ironlaw.records.diagnosis import Diagnosis
from ironlaw.records.machine import Environment, Machine
from ironlaw.records.numbers import Energy, Gain, Goal, Interval
from ironlaw.records.shown import Shown
from ironlaw.records.vocabulary import Outcome, Pairs
from ironlaw.records.workload import Change, Execution, TensorSpec

RUN_SCHEMA = "ironlaw.run/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Before measuring: 90 % intervals; ``speedup`` above 1 is better for the objective.

    ``widened`` is the power by which earlier outcomes stretched the lever's own interval.
    """

    speedup: Interval
    basis: str
    size_bytes: Interval | None = None
    memory_bytes: Interval | None = None
    widened: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Percentiles:
    """Latency of one call. A percentile that the sample cannot support is None; ``refused`` says why."""

    p50: float
    p90: float | None
    p99: float | None
    mean: float
    samples: int
    refused: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One artefact as its workers ran it."""

    latency_s: Percentiles
    throughput_per_s: float
    batch: int
    launches: int
    blocks: int
    peak_memory_bytes: int
    size_bytes: int
    load_s: float
    prepare_s: float
    warmup_calls: int
    warm: bool
    faults_per_call: float
    system_s_per_call: float
    cpu_s_per_call: float
    threads_effective: float
    foreign_cpu: float
    energy_j: Energy


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """``drop`` is oriented: above 0 is worse than the baseline, as points or relative as the budget says.

    ``low``/``high`` is its interval; ``provable`` the smallest drop that this data can rule out. ``value`` is
    None when the metric is missing or NaN, which is a failure.
    """

    metric: str
    value: float | None
    baseline: float
    drop: float | None
    low: float | None
    high: float | None
    examples: int | None
    provable: float | None
    within: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """Evidence of what ran. ``proven`` False means unknown, which never passes as converted."""

    eligible: int
    converted: int
    precisions: Pairs = ()
    fallbacks: tuple[str, ...] = ()
    providers: Pairs = ()
    threads: int | None = None
    proven: bool = False
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Artefact:
    """What ships. ``kind`` is file, compiled or recipe; ``files`` are relative to ``folder``.

    ``snippet`` is a few lines of Python that load and run it without ironlaw.
    """

    kind: str
    folder: str
    files: tuple[str, ...]
    target: str
    execution: Execution
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    snippet: str
    size_bytes: int
    example: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One candidate measured (or failed)."""

    id: str
    changes: tuple[Change, ...]
    execution: Execution
    outcome: Outcome
    reason: str
    predicted: Prediction | None = None
    measured: Measurement | None = None
    gain: Gain | None = None
    quality: Quality | None = None
    certificate: Certificate | None = None
    artefact: Artefact | None = None
    spent_s: float = 0.0
    reused: bool = False

    @property
    def label(self) -> str:
        return " + ".join(str(change) for change in self.changes) or "baseline"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A lever that was not tried, and why."""

    lever: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Run(Shown):
    """One use of the loop, as stored and as rendered."""

    id: str
    created: str
    name: str
    goal: Goal
    environment: Environment
    machine: Machine
    baseline: Trial
    diagnosis: Diagnosis
    trials: tuple[Trial, ...]
    frontier: tuple[str, ...]
    best: str
    refused: tuple[Refusal, ...]
    account: tuple[str, ...]
    floor: float
    satisfied: bool
    best_diagnosis: Diagnosis | None = None
    spent_s: float = 0.0
    schema: str = field(default=RUN_SCHEMA)

    def trial(self, trial_id: str) -> Trial:
        return next(t for t in (self.baseline, *self.trials) if t.id == trial_id)

    @property
    def best_trial(self) -> Trial:
        return self.trial(self.best)
