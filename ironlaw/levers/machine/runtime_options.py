"""The runtime's own switches: ONNX Runtime's graph level, spinning, inter-op; OpenVINO's streams and pinning.

Why they are tried at all: defaults are chosen for many cores and large models. Spinning threads burn a core that a
neighbour (or a second pool) wants; a graph with branches can run them side by side; a batch split among streams needs
no synchronisation inside operators. No law predicts these from a ledger beyond the share of time that they touch, so
predictions are wide and say so. It refuses on a runtime that has no such switches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.records import (
    Axis,
    Candidate,
    Change,
    Diagnosis,
    Interval,
    Kind,
    Machine,
    Prediction,
    Scalar,
    Term,
    UserError,
    exactly,
)

_REBUILD_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeOptionsSettings:
    """One switch of one runtime: ``value`` as text, so that settings stay flat. ``target`` names the runtime."""

    target: str
    option: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Switch:
    """``gain`` bounds what it does to the whole time; ``when`` says whether it can matter at all."""

    value: str | int | bool
    gain: Interval
    why: str
    when: Callable[[Candidate], bool] = lambda candidate: True


def _threaded(candidate: Candidate) -> bool:
    return candidate.execution.threads > 1


def _splits(candidate: Candidate) -> bool:
    execution = candidate.execution
    return execution.threads > 1 and execution.batch % execution.threads == 0


_SPREAD = Interval(low=0.8, value=1.0, high=1.25)
_SWITCHES: dict[str, dict[str, tuple[_Switch, ...]]] = {
    "onnxruntime": {
        "spinning": (_Switch(value=False, gain=_SPREAD, why="idle threads sleep", when=_threaded),),
        "graph_level": (
            _Switch(value="extended", gain=Interval(low=0.6, value=0.95, high=1.3), why="no layout blocking"),
            _Switch(value="basic", gain=Interval(low=0.5, value=0.85, high=1.1), why="no fusion either"),
        ),
        "mode": (
            _Switch(
                value="parallel",
                gain=Interval(low=0.6, value=0.95, high=1.4),
                why="branches side by side",
                when=_threaded,
            ),
        ),
    },
    "openvino": {
        "streams": (
            _Switch(
                value=0, gain=Interval(low=0.8, value=1.05, high=1.5), why="the batch split among threads", when=_splits
            ),
        ),
        "pinning": (_Switch(value=True, gain=_SPREAD, why="threads stay on their cores", when=_threaded),),
    },
}
"""``streams`` 0 stands for one stream a thread."""


class RuntimeOptions:
    """The lever ``runtime_options``."""

    name: ClassVar[str] = "runtime_options"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.LATENCY, Term.COMPUTE, Term.MEMORY, Term.SYNC})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"runtime.options"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "ONNX Runtime thread management; OpenVINO CPU device, streams"
    Settings: ClassVar[type] = RuntimeOptionsSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        target = candidate.execution.target
        if target not in _SWITCHES:
            known = ", ".join(_SWITCHES)
            return No(f"{target} has no switches of its own here (those with: {known})")
        if not self._open(candidate):
            return No(f"with one thread and batch {candidate.execution.batch} no switch of {target} can matter")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """The switches that are not set yet, the widest possible gain first."""
        found = sorted(self._open(candidate), key=lambda pair: -pair[1].gain.high)
        return [Option(settings=settings, cost_s=_REBUILD_S) for settings, _ in found]

    def predict(
        self, candidate: Candidate, settings: RuntimeOptionsSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        switch = _switch(settings)
        return predict.amdahl(
            diagnosis,
            seconds=exactly(diagnosis.total_s),
            factor=switch.gain,
            basis=f"{settings.option}={settings.value}: {switch.why}; no law, a range seen before",
        )

    def apply(self, candidate: Candidate, settings: RuntimeOptionsSettings) -> tuple[Candidate, Change]:
        """Raises ``UserError`` when the candidate runs elsewhere or there is no such switch."""
        execution = candidate.execution
        if settings.target != execution.target:
            raise UserError(
                f"{settings.option}={settings.value}",
                f"is a switch of {settings.target}, and the candidate runs on {execution.target}",
                "Move it there first.",
            )
        values: dict[str, Scalar] = {settings.option: _resolved(settings, candidate)}
        if values == {"mode": "parallel"}:
            values["inter_op"] = execution.threads
        return changed(self, candidate, settings, execution=execution.with_options(**values))

    @staticmethod
    def _open(candidate: Candidate) -> list[tuple[RuntimeOptionsSettings, _Switch]]:
        target = candidate.execution.target
        out = []
        for option, switches in _SWITCHES.get(target, {}).items():
            for switch in switches:
                settings = RuntimeOptionsSettings(target=target, option=option, value=str(switch.value))
                if switch.when(candidate) and candidate.execution.option(option) != _resolved(settings, candidate):
                    out.append((settings, switch))
        return out


def _switch(settings: RuntimeOptionsSettings) -> _Switch:
    for switch in _SWITCHES.get(settings.target, {}).get(settings.option, ()):
        if str(switch.value) == settings.value:
            return switch
    known = ", ".join(f"{o}={s.value}" for o, found in _SWITCHES.get(settings.target, {}).items() for s in found)
    raise UserError(
        f"{settings.target} {settings.option}={settings.value}", "is not a switch that is tried", f"Use one of {known}."
    )


def _resolved(settings: RuntimeOptionsSettings, candidate: Candidate) -> str | int | bool:
    value = _switch(settings).value
    return candidate.execution.threads if settings.option == "streams" and value == 0 else value
