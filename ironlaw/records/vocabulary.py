"""The words that every step shares: kinds, axes, terms, objectives, forms, outcomes, and the user's error."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    UNMEASURED = "unmeasured"
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
    Outcome.UNMEASURED: _text(
        "the quantity that the objective asks for is not known for it",
        "use a machine with counters, or a runtime whose operators can be counted",
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
