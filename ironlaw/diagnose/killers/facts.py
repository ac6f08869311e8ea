"""What the detectors look at: one diagnosed run, its machine, and what an inspection saw inside the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ironlaw.diagnose.shares import ARITHMETIC
from ironlaw.records import (
    Certificate,
    Execution,
    Inspection,
    Ledger,
    Machine,
    Measurement,
    Op,
    Term,
    TermTime,
    precision,
)

NOTABLE = 0.1
"""A killer is told from this share of the time on."""
NAMED = 4
"""Operators or layers that evidence names; the rest are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """One run. ``ledger`` and ``terms`` are the diagnosis' own, so that operator times add up to the total."""

    ledger: Ledger
    terms: tuple[TermTime, ...]
    measurement: Measurement
    machine: Machine
    execution: Execution
    certificate: Certificate | None = None
    inspection: Inspection | None = None

    @property
    def total_s(self) -> float:
        return self.measurement.latency_s.p50

    @property
    def cores(self) -> int:
        """Cores that the execution may use."""
        return len(self.execution.cpus) or self.machine.environment.identity.cores

    def term(self, term: Term) -> TermTime | None:
        return next((one for one in self.terms if one.term == term), None)

    def share(self, term: Term) -> float:
        found = self.term(term)
        return found.seconds.value / self.total_s if found else 0.0

    def least_share(self, term: Term) -> float:
        """The share at the low end of the term's interval."""
        found = self.term(term)
        return found.seconds.low / self.total_s if found else 0.0

    def share_of(self, ops: Iterable[Op]) -> float | None:
        """The share of the time that these operators take; None when no operator was timed."""
        if all(op.time_s is None for op in self.ledger.ops):
            return None
        return min(1.0, sum(op.time_s or 0.0 for op in ops) / self.total_s)

    def arithmetic(self, *precisions: str) -> list[Op]:
        """Products and convolutions that run in one of these precisions (all without any)."""
        ops = [op for op in self.ledger.ops if op.kind in ARITHMETIC]
        return [op for op in ops if not precisions or self.runs_in(op) in precisions]

    def runs_in(self, op: Op) -> str:
        """The precision that an operator runs in: a float model is cast to that of the execution."""
        if op.name.startswith("quantized"):
            return "int8"
        own = precision(op.dtype) or "fp32"
        return self.execution.precision if own == "fp32" else own


def calls(ops: Iterable[Op]) -> int:
    return sum(op.calls for op in ops)


def named(words: Iterable[str]) -> str:
    """The first few, and how many more: ``a, b and 3 more``."""
    found = list(dict.fromkeys(words))
    rest = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def milliseconds(seconds: float) -> str:
    """As text, without an exponent where it is long: ``2,400 ms``, ``0.46 ms``."""
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 100.0 else f"{value:.3g} ms"


def worth(share: float | None) -> bool:
    """Whether a share of the time is worth telling; one that is not known is."""
    return share is None or share >= NOTABLE
