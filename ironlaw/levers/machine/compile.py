"""``torch.compile`` on the torch target: small operators fused, Python out of the call.

It lives only in a process, so the artefact is a recipe and the seconds of compilation are reported as
loading. ``freezing`` folds weights (batch norm, packing for the convolution library) into the graph. It needs a
C++ compiler and Python's headers; without them the lever is refused before it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.levers._torch import compiled, frozen, measured_on_torch
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Interval, Kind, Machine, Prediction, Term

_COMPILE_S = 25.0
_GUARDS = Interval(low=6.0, value=14.0, high=30.0)
"""What entering compiled code costs in every call (guards on shapes, dtypes and globals), in eager dispatches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileSettings:
    """``freezing`` treats parameters as constants; ``mode`` is torch.compile's own."""

    freezing: bool = True
    mode: str = "default"


class Compile:
    """Compiles the model with inductor when it is loaded."""

    name: ClassVar[str] = "compile"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.LATENCY, Term.MEMORY, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"compiler"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch", "compiler"})
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Ansel et al. 2024, PyTorch 2, ASPLOS, doi:10.1145/3620665.3640366"
    Settings: ClassVar[type] = CompileSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        if candidate.execution.target == "aotinductor":
            return No("AOTInductor has compiled this candidate already")
        asked = measured_on_torch(candidate, diagnosis, "torch.compile")
        guards = _guards_s(machine)
        if asked and guards and diagnosis.total_s < guards.low:
            return No(
                f"compile refused: a call takes {diagnosis.total_s * 1e6:.3g} us, and entering compiled code "
                f"{guards.low * 1e6:.3g} to {guards.high * 1e6:.3g} us: compile a larger region"
            )
        return asked

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """Frozen weights first; unfrozen is what a plain ``torch.compile`` gives and stays on the table."""
        return [
            Option(settings=CompileSettings(freezing=True), cost_s=_COMPILE_S),
            Option(settings=CompileSettings(freezing=False), cost_s=_COMPILE_S),
        ]

    def predict(
        self, candidate: Candidate, settings: CompileSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        dispatch = (
            Interval(low=1.2, value=2.5, high=10.0) if settings.freezing else Interval(low=1.1, value=2.0, high=8.0)
        )
        basis = "fusion of small operators and less dispatch"
        found = frozen(candidate, diagnosis, machine, basis=basis) if settings.freezing else None
        found = found or compiled(diagnosis, dispatch=dispatch, basis=basis)
        return _with_guards(found, diagnosis, machine)

    def apply(self, candidate: Candidate, settings: CompileSettings) -> tuple[Candidate, Change]:
        execution = candidate.execution.with_options(compile=True, freezing=settings.freezing, mode=settings.mode)
        return changed(self, candidate, settings, execution=execution)


def _guards_s(machine: Machine) -> Interval | None:
    found = machine.ceiling("dispatch", refused=True)
    return _GUARDS.scaled(found.value) if found else None


def _with_guards(found: Prediction, diagnosis: Diagnosis, machine: Machine) -> Prediction:
    """The prediction with what guards add to every call."""
    guards, gain, total = _guards_s(machine), found.speedup, diagnosis.total_s
    if guards is None:
        return found
    speedup = Interval(
        low=total / (total / gain.low + guards.high),
        value=total / (total / gain.value + guards.value),
        high=total / (total / gain.high + guards.low),
    )
    basis = f"{found.basis}; guards take {guards.value * 1e6:.3g} us a call"
    return Prediction(speedup=speedup, basis=basis)
