"""What a run did and where its time went: operators, ledger, terms, bounds."""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.records.numbers import Interval
from ironlaw.records.vocabulary import Term

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
    findings: tuple[Finding, ...] = ()
    perturbations: tuple[Perturbation, ...] = ()
    schema: str = DIAGNOSIS_SCHEMA

    def seconds(self, term: Term) -> float:
        return next((t.seconds.value for t in self.terms if t.term == term), 0.0)

    def share(self, term: Term) -> float:
        return self.seconds(term) / self.total_s if self.total_s else 0.0
