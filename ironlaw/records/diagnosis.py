"""What a run did and where its time went: operators, ledger, terms, bounds."""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.records.numbers import Energy, Interval
from ironlaw.records.shown import Shown
from ironlaw.records.training import Loader, StepTimes, TrainingMemory
from ironlaw.records.vocabulary import Pairs, Term

DIAGNOSIS_SCHEMA = "ironlaw.diagnosis/1"


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
class Finding:
    """A silent killer that was seen: ``kind`` names it, ``share`` is of the time (None: not known)."""

    kind: str
    attacks: Term | None
    share: float | None
    evidence: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """What was seen inside a loaded model that neither counting nor timing shows; None is not known.

    ``subnormal_weights`` and ``subnormal_activations`` are shares of values; ``flushed_speedup`` is a call's time
    over that with subnormals flushed. ``zeros`` is the share of exact zeros in each weight that a product or
    convolution read, ``zero_share`` that of all of them together. ``widths`` are channels by layer (``fc.in``,
    ``fc.out``), ``pools`` threads by library. ``busy_threads`` used the CPU during calls. ``shapes`` were
    tried; ``recompiles`` is how often the code that was compiled most often was compiled again. ``saturating``
    counts int8 operators that multiply unsigned activations by weights over the whole signed range.
    """

    subnormal_weights: float | None = None
    subnormal_activations: float | None = None
    flushes_subnormals: bool = False
    flushed_speedup: float | None = None
    zero_share: float | None = None
    zeros: Pairs = ()
    widths: Pairs = ()
    pools: Pairs = ()
    busy_threads: int | None = None
    graphs: int = 0
    graph_breaks: int = 0
    shapes: int = 1
    recompiles: int = 0
    saturating: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Perturbation:
    """One thing changed, and what the time did: ``seconds`` is what the change says that ``term`` takes of a call.

    ``confirms`` is whether that agrees with the term of the diagnosis; None when it cannot tell.
    """

    name: str
    term: Term
    seconds: Interval | None
    confirms: bool | None
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OpElsewhere:
    """One operator at the published peaks of another machine, totals over ``calls``.

    ``arithmetic_s`` is None where no peak in ``dtype`` is published, ``traffic_s`` where no bandwidth is. ``side``
    is None where the interval of bytes straddles the ridge, or one of the two is not known. ``here_s`` was measured.
    """

    name: str
    kind: str
    dtype: str
    shape: str
    calls: int
    here_s: float | None
    arithmetic_s: float | None
    traffic_s: Interval | None
    side: Term | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere:
    """A ledger carried to a published machine: what would dominate there, whether it fits, whether it would help.

    Bounds are at published peaks, with what is neither arithmetic nor traffic here (dispatch above all) taken as 0 to
    as much as here. ``at_most`` is the most that the machine can give over the time measured here; None where
    nothing bounds it. ``speedup`` is None where its lower end is not known. ``helps`` and ``fits`` are None when
    undetermined. ``counted_again`` says that the traffic was narrowed for that machine's cache (``cache_bytes``).
    ``notes`` say what is not published and what is left out, ``sources`` where each number that was used comes from.
    """

    name: str
    title: str
    kind: str
    cache_bytes: float | None
    counted_again: bool
    ops: tuple[OpElsewhere, ...]
    terms: tuple[TermTime, ...]
    dominant: Term | None
    why: str
    serial_bound_s: Interval | None
    overlapped_bound_s: Interval | None
    at_most: float | None
    speedup: Interval | None
    helps: bool | None
    advice: str
    fits: bool | None
    fit: str
    notes: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis(Shown):
    """Terms that sum to the measured time; ``dominant`` is None when undetermined.

    ``energy`` is of one call, by part. ``step``, ``loader`` and the peak ``memory`` (predicted) are those of a training
    job: its time is that of a step.
    """

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
    findings: tuple[Finding, ...] = ()
    perturbations: tuple[Perturbation, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    energy: Energy | None = None
    step: StepTimes | None = None
    loader: Loader | None = None
    memory: TrainingMemory | None = None
    schema: str = DIAGNOSIS_SCHEMA

    def seconds(self, term: Term) -> float:
        return next((t.seconds.value for t in self.terms if t.term == term), 0.0)

    def share(self, term: Term) -> float:
        return self.seconds(term) / self.total_s if self.total_s else 0.0
