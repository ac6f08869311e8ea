"""A host: what it is, what held while it was measured, and its ceilings."""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.records.codec import digest_of
from ironlaw.records.numbers import Interval
from ironlaw.records.shown import Shown
from ironlaw.records.vocabulary import Pairs

MACHINE_SCHEMA = "ironlaw.machine/1"


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
class KernelPoint:
    """One calibrated shape: seconds of a call, its fixed cost included, by ``work`` (FLOPs, or bytes moved).

    ``weights`` counts the stored elements that it uses (0: none); ``op`` tells operators of one kind apart. ``seconds``
    are of a call among others, ``repeated_s`` of the same call over and over, with all in the inner caches. Of
    recurrent layers a point is one step, without the call's fixed cost.
    """

    op: str
    work: float
    weights: float
    seconds: float
    repeated_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRate:
    """What one operator kind reached in a runtime on calibration shapes (never the workload's).

    ``rate`` is FLOP/s for arithmetic kinds and B/s for the others; ``call_s`` is the fixed cost of
    one such operator; quantiles are over shapes, which ``points`` lists. ``valid`` is False when others took too
    much of the CPU.
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
    points: tuple[KernelPoint, ...] = ()


_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "int8", "qint8": "int8"}


def precision(dtype: str | None) -> str | None:
    """The short name of a dtype (``float32`` is ``fp32``), by which ceilings and kernel rates are looked up."""
    return None if dtype is None else _PRECISIONS.get(dtype, dtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine(Shown):
    """The measured ceilings of this host. ``notes`` say what could not be measured; ``quick`` took less time."""

    environment: Environment
    ceilings: tuple[Ceiling, ...]
    caches: tuple[Cache, ...] = ()
    kernels: tuple[KernelRate, ...] = ()
    notes: tuple[str, ...] = ()
    quick: bool = False
    schema: str = MACHINE_SCHEMA

    def ceiling(
        self, name: str, *, dtype: str | None = None, threads: int = 1, refused: bool = False
    ) -> Ceiling | None:
        """The ceiling of that name at the nearest measured thread count not above ``threads``.

        One that the probe refused is not known, unless ``refused`` asks for it (to draw it, say).
        """
        short = precision(dtype)
        found = [
            c
            for c in self.ceilings
            if (c.valid or refused) and c.name == name and precision(c.dtype) == short and c.threads <= threads
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
