"""The frozen records that cross every step of the loop, and their JSON form.

Why one module: a record is the only thing that two steps share, so that a run can be stored,
resumed and rendered again years later without the code that made it. Only the standard library
is imported here. Units are in the names and SI inside; a prediction or a measured quantity is an
:class:`Interval`; what is not known is ``None`` with a reason beside it, never 0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

RUN_SCHEMA = "ironlaw.run/1"
MACHINE_SCHEMA = "ironlaw.machine/1"
DIAGNOSIS_SCHEMA = "ironlaw.diagnosis/1"

Scalar = str | int | float | bool | None
Pairs = tuple[tuple[str, Scalar], ...]
"""A small mapping that stays frozen, hashable and ordered."""


class UserError(Exception):
    """The input of the user is wrong: what was given, what is wrong with it, what to do.

    The command line prints it without a traceback and exits with ``exit_code``
    (2 the input, 3 no point satisfies the constraints, 4 a prerequisite is missing).
    """

    def __init__(self, given: str, wrong: str, remedy: str, exit_code: int = 2) -> None:
        super().__init__(f"{given}: {wrong}\n  {remedy}")
        self.given, self.wrong, self.remedy, self.exit_code = given, wrong, remedy, exit_code


# ---------------------------------------------------------------- vocabulary


class Kind(StrEnum):
    """Kinds of workload."""

    INFERENCE = "inference"
    TRAINING = "training"
    FIT = "fit"


class Axis(StrEnum):
    """Where a lever acts, in the order in which plans ask: D, A, M."""

    DATA = "data"
    ALGORITHM = "algorithm"
    MACHINE = "machine"


class Term(StrEnum):
    """Terms of the iron law. They sum to the measured time, with ``RESIDUAL``."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency"
    PAGING = "paging"
    IO = "io"
    COMM = "comm"
    SYNC = "sync"
    SERIAL = "serial"
    RESIDUAL = "residual"


class Objective(StrEnum):
    """What ``tune`` makes better. Ratios are always oriented so that above 1 is better."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    SIZE = "size"
    MEMORY = "memory"
    ENERGY = "energy"


class Form:
    """What a model is at the moment. Plain strings, so that other packages may add theirs."""

    EAGER = "eager"
    EXPORTED = "exported"
    ONNX = "onnx"
    OPENVINO = "openvino"


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeText:
    cause: str
    next_step: str


class Outcome(StrEnum):
    """How a trial ended; each member carries its cause and the next step."""

    IMPROVED = "improved"
    NOT_BETTER = "not_better"
    OVER_BUDGET = "over_budget"
    CONSTRAINT = "constraint"
    NO_OP = "no_op"
    FALLBACK = "fallback"
    UNSETTLED = "unsettled"
    SCREENED_OUT = "screened_out"
    BUILD_FAILED = "build_failed"
    CRASHED = "crashed"
    HUNG = "hung"
    OUT_OF_MEMORY = "out_of_memory"
    NOT_FINITE = "not_finite"

    @property
    def cause(self) -> str:
        return _OUTCOMES[self].cause

    @property
    def next_step(self) -> str:
        return _OUTCOMES[self].next_step

    @property
    def failed(self) -> bool:
        """True when nothing usable was measured."""
        return self in _FAILURES


def _text(cause: str, next_step: str) -> OutcomeText:
    return OutcomeText(cause=cause, next_step=next_step)


_OUTCOMES = {
    Outcome.IMPROVED: _text(
        "better than the baseline beyond the smallest gain that can be claimed here, quality within the budget",
        "deploy it, or combine it with a lever whose claims do not conflict",
    ),
    Outcome.NOT_BETTER: _text(
        "the interval of the gain does not clear the smallest gain that can be claimed here",
        "keep the baseline; attack the dominant term instead",
    ),
    Outcome.OVER_BUDGET: _text(
        "the quality drop is not proven to lie within the budget",
        "raise --max-drop, give more evaluation examples, or spare the sensitive layers",
    ),
    Outcome.CONSTRAINT: _text("a limit on latency, size or memory is not met", "loosen the limit or try another lever"),
    Outcome.NO_OP: _text(
        "the artefact does what it did before: nothing was changed", "look at the certificate for what was eligible"
    ),
    Outcome.FALLBACK: _text(
        "operators fell back to another provider or precision", "look at the certificate for their names"
    ),
    Outcome.UNSETTLED: _text(
        "other work on this machine took too much of it to judge", "run again when the machine is quiet"
    ),
    Outcome.SCREENED_OUT: _text(
        "short measurements put it clearly behind the best point", "nothing: it cannot win here"
    ),
    Outcome.BUILD_FAILED: _text("the model could not be brought into this form", "see the reason; other levers go on"),
    Outcome.CRASHED: _text("the worker process died", "see the reason; this runtime cannot run this model here"),
    Outcome.HUNG: _text("no answer within the time limit of a trial", "raise --trial-limit if it is merely slow"),
    Outcome.OUT_OF_MEMORY: _text(
        "the worker went over the memory limit", "raise --memory-limit, or use a smaller batch"
    ),
    Outcome.NOT_FINITE: _text("the outputs hold NaN or Inf", "a lower precision overflows here: spare that layer"),
}
_FAILURES = frozenset({Outcome.BUILD_FAILED, Outcome.CRASHED, Outcome.HUNG, Outcome.OUT_OF_MEMORY, Outcome.NOT_FINITE})


# ---------------------------------------------------------------- numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A number with its interval; what level it has is said by the field that holds it."""

    low: float
    value: float
    high: float

    def times(self, other: Interval) -> Interval:
        """Product of two positive intervals, widths added in quadrature on the log scale."""
        value = self.value * other.value
        down = math.hypot(math.log(self.value / self.low), math.log(other.value / other.low))
        up = math.hypot(math.log(self.high / self.value), math.log(other.high / other.value))
        return Interval(low=value * math.exp(-down), value=value, high=value * math.exp(up))

    def scaled(self, factor: float) -> Interval:
        return Interval(low=self.low * factor, value=self.value * factor, high=self.high * factor)


def exactly(value: float) -> Interval:
    """An interval of no width."""
    return Interval(low=value, value=value, high=value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How much quality may be given: ``1pt`` is absolute (0.01), ``1%`` relative to the baseline."""

    amount: float
    relative: bool

    def __str__(self) -> str:
        return f"{self.amount * 100:g}{'%' if self.relative else 'pt'}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What the user asked for. ``None`` is no limit."""

    objective: Objective = Objective.LATENCY
    max_drop: Budget = Budget(amount=0.01, relative=False)
    min_quality: float | None = None
    p99_s: float | None = None
    max_size_bytes: int | None = None
    max_memory_bytes: int | None = None
    cores: int | None = None
    target: str | None = None
    allow_modelled_energy: bool = False


# ---------------------------------------------------------------- machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What must be equal for two results to be compared. Part of every key."""

    cpu: str
    architecture: str
    isa: tuple[str, ...]
    cores: int
    memory_bytes: int
    os: str
    python: str
    accelerators: tuple[str, ...] = ()
    versions: Pairs = ()

    @property
    def digest(self) -> str:
        return digest_of(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """What held while a result was taken. Stored beside it, never part of a key."""

    load_1m: float
    governor: str | None
    frequency_hz: float | None
    variables: Pairs = ()
    allocator: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    identity: Identity
    conditions: Conditions


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """One measured limit. ``low``/``high`` are the 10 % and 90 % quantiles over repetitions.

    Names: ``matmul`` (FLOP/s; dtype), ``dram`` and ``cache`` (B/s), ``dispatch`` (s an eager
    operator; dtype None), ``fault`` (s a minor page fault), ``spawn`` (s); more are listed in
    ``ironlaw.machine``. ``valid`` is False when
    the spread or the load made the probe refuse; ``note`` says why.
    """

    name: str
    unit: str
    value: float
    low: float
    high: float
    dtype: str | None = None
    threads: int = 1
    valid: bool = True
    note: str = ""

    @property
    def interval(self) -> Interval:
        return Interval(low=self.low, value=self.value, high=self.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cache:
    """A cache level, as seen by a bandwidth sweep and as the system reports it."""

    level: int
    size_bytes: int
    bandwidth_bytes_per_s: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRate:
    """What one operator kind reached in a runtime on calibration shapes (never the workload's).

    ``rate`` is FLOP/s for arithmetic kinds and B/s for the others; ``call_s`` is the fixed cost of
    one such operator; quantiles are over shapes. ``valid`` is False when others took too much of the CPU.
    """

    target: str
    kind: str
    dtype: str
    threads: int
    unit: str
    rate: Interval
    call_s: float
    shapes: int
    valid: bool = True


_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "int8", "qint8": "int8"}


def precision(dtype: str | None) -> str | None:
    """The short name of a dtype (``float32`` is ``fp32``), by which ceilings and kernel rates are looked up."""
    return None if dtype is None else _PRECISIONS.get(dtype, dtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The measured ceilings of this host. ``notes`` say what could not be measured; ``quick`` took less time."""

    environment: Environment
    ceilings: tuple[Ceiling, ...]
    caches: tuple[Cache, ...] = ()
    kernels: tuple[KernelRate, ...] = ()
    notes: tuple[str, ...] = ()
    quick: bool = False
    schema: str = MACHINE_SCHEMA

    def ceiling(self, name: str, *, dtype: str | None = None, threads: int = 1) -> Ceiling | None:
        """The ceiling of that name at the nearest measured thread count not above ``threads``.

        One that the probe refused is not known.
        """
        short = precision(dtype)
        found = [
            c
            for c in self.ceilings
            if c.valid and c.name == name and precision(c.dtype) == short and c.threads <= threads
        ]
        return max(found, key=lambda c: c.threads, default=None)

    def kernel(self, target: str, kind: str, dtype: str, *, threads: int = 1) -> KernelRate | None:
        """The rate of that kind at the nearest calibrated thread count; one that did not settle is not known."""
        wanted = (target, kind, precision(dtype))
        found = [
            k
            for k in self.kernels
            if k.valid and (k.target, k.kind, precision(k.dtype)) == wanted and k.threads <= threads
        ]
        return max(found, key=lambda k: k.threads, default=None)


# ---------------------------------------------------------------- workload


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """One input or output: axis 0 is the batch where ``batched``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    batched: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """A model in one form on disk. ``path`` is a file, or a folder for forms of several files."""

    form: str
    path: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """What a workload was when the user's function was called: all that workers ever see.

    ``folder`` holds ``example.npz`` and ``calibration.npz`` (arrays named ``<batch>.<input>``)
    and one folder a form under ``forms/``. ``dynamic`` says whether the batch axis may change.
    """

    digest: str
    kind: Kind
    name: str
    folder: str
    model: ModelFile
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch: int
    dynamic: bool
    parameters: int
    weights_bytes: int
    calibration_batches: int = 0
    has_training_data: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How a workload is run. ``variables`` are environment variables; ``options`` are the target's own.

    ``cpus`` is the affinity; empty means all that the process may use. ``precision`` is the
    arithmetic asked of the target (``fp32``, ``bf16``, ``fp16``); stored weights may be narrower.
    """

    target: str = "torch"
    batch: int = 1
    threads: int = 1
    cpus: tuple[int, ...] = ()
    replicas: int = 1
    precision: str = "fp32"
    variables: Pairs = ()
    options: Pairs = ()

    def option(self, name: str, default: Scalar = None) -> Scalar:
        return dict(self.options).get(name, default)

    def with_options(self, **options: Scalar) -> Execution:
        return dataclasses.replace(self, options=tuple(sorted({**dict(self.options), **options}.items())))

    def with_variables(self, variables: Mapping[str, str]) -> Execution:
        return dataclasses.replace(self, variables=tuple(sorted({**dict(self.variables), **variables}.items())))


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A lever applied, so that it can be replayed. ``facts`` is what was really changed."""

    lever: str
    version: int
    settings: Pairs
    claims: tuple[str, ...]
    facts: Pairs = ()
    no_op: bool = False

    def __str__(self) -> str:
        inside = ", ".join(f"{k}={v}" for k, v in self.settings)
        return f"{self.lever}({inside})" if inside else self.lever


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A workload in some form and an execution, with the changes that led to it.

    ``workspace`` is a folder in which a lever may write new model files; it never writes
    anywhere else. Before a build, a planned candidate has no workspace ("").
    """

    snapshot: Snapshot
    model: ModelFile
    execution: Execution
    goal: Goal
    changes: tuple[Change, ...] = ()
    workspace: str = ""

    @property
    def claimed(self) -> frozenset[str]:
        return frozenset(claim for change in self.changes for claim in change.claims)


# ---------------------------------------------------------------- ledger and diagnosis


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One operator kind at one shape in a run: what it needs and, when profiled, what it took.

    ``kind`` is one of conv, depthwise, matmul, attention, elementwise, norm, pool, reduce, softmax,
    embedding, recurrent, copy, view, other. An FMA is two FLOPs. ``flops`` is None when the
    operator could not be counted. ``bytes_low`` is what must cross memory (weights and first
    touch), ``bytes_high`` every operand of every call. Totals over ``calls``.
    """

    name: str
    kind: str
    calls: int
    flops: float | None
    bytes_low: float
    bytes_high: float
    dtype: str = "float32"
    shape: str = ""
    weights_bytes: float = 0.0
    time_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """What one call of a workload did.

    ``profiled_s`` is what a call took in the pass that gave the operators their times, without the observer,
    and ``observer_s`` what the observer had added to it.
    """

    ops: tuple[Op, ...]
    batch: int
    source: str
    observer_s: float | None = None
    profiled_s: float | None = None

    @property
    def flops(self) -> float:
        return sum(op.flops or 0.0 for op in self.ops)

    @property
    def dispatches(self) -> int:
        return sum(op.calls for op in self.ops)

    @property
    def bytes_low(self) -> float:
        return sum(op.bytes_low for op in self.ops)

    @property
    def bytes_high(self) -> float:
        return sum(op.bytes_high for op in self.ops)

    @property
    def uncounted(self) -> tuple[str, ...]:
        return tuple(op.name for op in self.ops if op.flops is None)


@dataclass(frozen=True, kw_only=True, slots=True)
class TermTime:
    term: Term
    seconds: Interval
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The most that a class of change can give on this workload. ``wasted`` when that is below 1.05."""

    change: str
    attacks: Term
    speedup: float
    wasted: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Terms that sum to the measured time; ``dominant`` is None when undetermined."""

    total_s: float
    terms: tuple[TermTime, ...]
    dominant: Term | None
    why: str
    ledger: Ledger
    bounds: tuple[Bound, ...]
    target: str = "torch"
    threads: int = 1
    serial_bound_s: Interval | None = None
    overlapped_bound_s: Interval | None = None
    schema: str = DIAGNOSIS_SCHEMA

    def seconds(self, term: Term) -> float:
        return next((t.seconds.value for t in self.terms if t.term == term), 0.0)

    def share(self, term: Term) -> float:
        return self.seconds(term) / self.total_s if self.total_s else 0.0


# ---------------------------------------------------------------- trials


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Before measuring: 90 % intervals; ``speedup`` above 1 is better for the objective."""

    speedup: Interval
    basis: str
    size_bytes: Interval | None = None
    memory_bytes: Interval | None = None


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
class Energy:
    """``source`` is counter, modelled or unknown (then ``value`` is None)."""

    value: float | None
    source: str


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
class Gain:
    """Paired ratio to the baseline (above 1 is better), 95 %; ``floor`` is the smallest claimable gain."""

    median: float
    low: float
    high: float
    floor: float
    settled: bool
    launches: int

    @property
    def proven(self) -> bool:
        return self.settled and self.low > max(1.0, self.floor)


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
class Run:
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


# ---------------------------------------------------------------- JSON


def to_data(value: Any) -> Any:
    """A record as plain lists and dicts. ``Pairs`` become objects; NaN and Inf are refused."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        return {
            f.name: dict(getattr(value, f.name)) if hints[f.name] == Pairs else to_data(getattr(value, f.name))
            for f in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(k): to_data(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_data(v) for v in value]
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a record holds NaN or Inf: unknown is None with a reason")
    return value


def to_json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(to_data(value), indent=indent, sort_keys=False, allow_nan=False)


def from_data(cls: type[T], data: Any) -> T:
    """The record of type ``cls`` that :func:`to_data` wrote. Unknown keys are an error."""
    hints = _hints(cls)
    unknown = set(data) - set(hints)
    if unknown:
        raise ValueError(f"{cls.__name__} has no {sorted(unknown)}")
    return cls(**{name: _decode(hints[name], value) for name, value in data.items()})


def from_json(cls: type[T], text: str) -> T:
    return from_data(cls, json.loads(text))


def digest_of(value: Any) -> str:
    """Content address of a record: sha256 of its canonical JSON."""
    text = json.dumps(to_data(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(hint: Any, value: Any) -> Any:
    if hint == Pairs:
        return tuple((str(k), v) for k, v in value.items())
    if value is None:
        return None
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = [a for a in typing.get_args(hint) if a is not type(None)][:1]
        return _decode(inner, value)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_decode(inner, v) for v in value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_data(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    if hint is float and isinstance(value, int):
        return float(value)
    return value
