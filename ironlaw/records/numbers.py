"""Numbers with their intervals, a paired gain, energy, and what the user asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ironlaw.records.vocabulary import Objective, Pairs


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
class Energy:
    """Of one call, in joules. ``source`` is counter, modelled or unknown (then ``value`` is None).

    ``parts`` are those of a model: arithmetic, caches, memory.
    """

    value: float | None
    source: str
    parts: Pairs = ()


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
    """What the user asked for. ``None`` is no limit.

    With ``rate_per_s`` latency is what a request sees from its arrival to its answer, when requests arrive at random at
    that rate; without it, what a call takes.
    """

    objective: Objective = Objective.LATENCY
    max_drop: Budget = Budget(amount=0.01, relative=False)
    min_quality: float | None = None
    p99_s: float | None = None
    rate_per_s: float | None = None
    max_size_bytes: int | None = None
    max_memory_bytes: int | None = None
    cores: int | None = None
    target: str | None = None
    allow_modelled_energy: bool = False
