"""The whole API of a newcomer: what a lever, a target and a session must offer.

Facts are declared as class attributes; conflicts, order and refusals are computed from them, so
that adding a lever or a target is one new file and no other edit. Nothing here imports a framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from ironlaw.records import (
    Artefact,
    Axis,
    Candidate,
    Certificate,
    Change,
    Diagnosis,
    KernelRate,
    Kind,
    Machine,
    Op,
    Prediction,
    Term,
)

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Yes:
    """The lever applies."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class No:
    """It does not, and the user is told why: *int8 refused: no VNNI here, bound 1.04x*."""

    reason: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """Settings worth trying, and what a try costs in seconds (building, not measuring).

    Options of one lever with the same word in ``alike`` are expected to run equally fast: when one was
    measured, the others are tried only if it lost too much quality.
    """

    settings: Any
    cost_s: float
    alike: str = ""


@runtime_checkable
class Lever(Protocol):
    """One optimisation. One file under ``levers/``; the class is instantiated without arguments.

    Law: ``apply`` leaves its candidate untouched, writes only under ``candidate.workspace``, and
    gives the same change for the same input; what it changed is what ``claims`` says.

    ``consumes`` holds the forms that ``apply`` takes (empty: any form, the model file is not
    touched); the builder brings the model to the nearest of them first. ``produces`` is the form
    after. ``needs`` holds ``package:NAME``, ``isa:FLAG``, ``calibration``, ``evaluate``, ``compiler``: what is
    missing is reported as a refusal before ``applies`` is asked. ``target`` is the runtime that
    the candidate runs on afterwards ("" when unchanged).
    """

    name: ClassVar[str]
    version: ClassVar[int]
    axis: ClassVar[Axis]
    attacks: ClassVar[frozenset[Term]]
    kinds: ClassVar[frozenset[Kind]]
    claims: ClassVar[frozenset[str]]
    consumes: ClassVar[frozenset[str]]
    produces: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    cites: ClassVar[str]
    Settings: ClassVar[type]

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        """Whether it may be tried on this candidate."""

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """Settings worth trying, the most promising first."""

    def predict(self, candidate: Candidate, settings: Any, diagnosis: Diagnosis, machine: Machine) -> Prediction:
        """The gain over ``candidate`` for the goal's objective, as a 90 % interval."""

    def apply(self, candidate: Candidate, settings: Any) -> tuple[Candidate, Change]:
        """The new candidate and a replayable record. Runs in a process of its own."""


class Session(Protocol):
    """A loaded artefact inside a worker. ``call`` is what is timed: synchronous, no conversions."""

    def prepare(self, arrays: Sequence[np.ndarray]) -> Any:
        """The runtime's native inputs for one batch, in the order of ``artefact.inputs``."""

    def call(self, native: Any) -> Any:
        """One call, finished when it returns."""

    def fetch(self, result: Any) -> list[np.ndarray]:
        """Outputs as arrays in the order of ``artefact.outputs``; bfloat16 becomes float32."""

    def profile(self, native: Any, calls: int) -> tuple[Op, ...]:
        """Operators with ``time_s`` a call, measured in a pass of their own; empty when the runtime cannot say."""

    def certify(self) -> Certificate:
        """What really runs: from the runtime's own profile or graph, never from what was asked."""


@runtime_checkable
class Target(Protocol):
    """A runtime or device that artefacts are for. One file under ``targets/``.

    ``forms`` are what ``export`` takes, the preferred one first. ``load`` must import the runtime
    inside, and respects ``artefact.execution`` (threads, precision, options).
    """

    name: ClassVar[str]
    forms: ClassVar[tuple[str, ...]]
    needs: ClassVar[frozenset[str]]

    def export(self, candidate: Candidate, folder: Path) -> Artefact:
        """Write what ships into ``folder`` and describe it. Runs in a process of its own."""

    def load(self, artefact: Artefact) -> Session:
        """Load it in this process."""

    def calibrate(self, threads: int, seconds: float) -> tuple[KernelRate, ...]:
        """Rates per operator kind and dtype on calibration shapes, within about ``seconds``."""


class Probe(Protocol):
    """Measures ceilings of this host. One file under ``machine/``."""

    name: ClassVar[str]

    def measure(self, threads: int, seconds: float) -> tuple[Any, ...]:
        """Ceilings or caches, each with its spread; ``valid=False`` with a note when it cannot tell."""
