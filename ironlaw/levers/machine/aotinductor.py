"""AOTInductor: the same fusion as ``torch.compile``, ahead of time, into a package that torch alone loads.

What ships is a compiler's output: no Python runs between operators, loading takes no compilation, and the
package is bound to its batch, precision, thread count and instruction set. It refuses models whose batch
cannot be fixed, and needs a C++ compiler here (not where it runs).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw import forms
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.levers._torch import compiled, frozen, measured_on_torch
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Form, Interval, Kind, Machine, Prediction, Term

_COMPILE_S = 40.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AotInductorSettings:
    """``freezing`` packs weights for the convolution and product library at compile time."""

    freezing: bool = True


class AotInductor:
    """Moves the candidate to the target ``aotinductor``."""

    name: ClassVar[str] = "aotinductor"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.LATENCY, Term.MEMORY, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"compiler", "target"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch", "compiler"})
    target: ClassVar[str] = "aotinductor"
    cites: ClassVar[str] = "Ansel et al. 2024, PyTorch 2, ASPLOS; PyTorch documentation, AOTInductor"
    Settings: ClassVar[type] = AotInductorSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        if candidate.execution.target != "torch":
            return No(f"AOTInductor starts from torch, and this candidate runs on {candidate.execution.target}")
        if forms.route(candidate.model.form, Form.EXPORTED) is None:
            return No(f"a model in the form {candidate.model.form} cannot become an exported program")
        return measured_on_torch(candidate, diagnosis, "AOTInductor")

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        return [
            Option(settings=AotInductorSettings(freezing=True), cost_s=_COMPILE_S),
            Option(settings=AotInductorSettings(freezing=False), cost_s=_COMPILE_S),
        ]

    def predict(
        self, candidate: Candidate, settings: AotInductorSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        dispatch = Interval(low=1.5, value=3.0, high=20.0)
        basis = "fusion of small operators and no Python between them"
        found = frozen(candidate, diagnosis, machine, basis=basis) if settings.freezing else None
        return found or compiled(diagnosis, dispatch=dispatch, basis=basis)

    def apply(self, candidate: Candidate, settings: AotInductorSettings) -> tuple[Candidate, Change]:
        """The execution moves to the target; options that only an uncompiled module has are dropped."""
        kept = tuple((k, v) for k, v in candidate.execution.options if k not in ("compile", "mode"))
        execution = dataclasses.replace(candidate.execution, target="aotinductor", options=kept)
        return changed(self, candidate, settings, execution=execution.with_options(freezing=settings.freezing))
