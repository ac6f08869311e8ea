"""Move a candidate to another runtime: one generic lever over every registered target.

A runtime brings its own graph optimiser, memory plan and kernels, which is why this claims the compiler
and the layout as well: channels-last or ``torch.compile`` before it would be undone. What the model
computes stays the same; precision stays what the execution says. It refuses runtimes whose package is
missing and the torch ones, which need levers of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw import forms, predict, registry
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Kind, Machine, Prediction, Term

_COMPILED_BY_LEVERS = frozenset({"torch", "aotinductor"})
_EXPORT_S = 8.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeSettings:
    """The runtime to move to."""

    target: str


class Runtime:
    """The lever ``runtime``."""

    name: ClassVar[str] = "runtime"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.LATENCY, Term.MEMORY, Term.COMPUTE, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"target", "compiler", "layout"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Jia et al. 2019, TASO (graph substitutions); ONNX Runtime graph optimisations"
    Settings: ClassVar[type] = RuntimeSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        if self._reachable(candidate, machine):
            return Yes()
        return No(f"runtime refused: {self._why_none(candidate, machine)}")

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        made = [
            Option(settings=RuntimeSettings(target=name), cost_s=_EXPORT_S)
            for name in self._reachable(candidate, machine)
        ]
        return sorted(made, key=lambda o: -self.predict(candidate, o.settings, diagnosis, machine).speedup.value)

    def predict(
        self, candidate: Candidate, settings: RuntimeSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        return predict.moved(
            diagnosis,
            machine,
            target=settings.target,
            dtype=candidate.execution.precision,
            threads=candidate.execution.threads,
        )

    def apply(self, candidate: Candidate, settings: RuntimeSettings) -> tuple[Candidate, Change]:
        """Only the execution changes; the target's own options of before are dropped, since they mean nothing there.

        The builder brings the model to a form that the target takes.
        """
        execution = dataclasses.replace(candidate.execution, target=settings.target, options=())
        return changed(self, candidate, settings, execution=execution)

    def _reachable(self, candidate: Candidate, machine: Machine) -> list[str]:
        return [name for name, reason in self._targets(candidate, machine).items() if not reason]

    def _why_none(self, candidate: Candidate, machine: Machine) -> str:
        reasons = [f"{name}: {reason}" for name, reason in self._targets(candidate, machine).items()]
        return "; ".join(reasons) or "there is no other runtime"

    @staticmethod
    def _targets(candidate: Candidate, machine: Machine) -> dict[str, str]:
        """Every other runtime, and why it cannot be used ("" when it can)."""
        out = {}
        for name, target in registry.targets().items():
            if name in _COMPILED_BY_LEVERS or name == candidate.execution.target:
                continue
            missing = registry.unmet(target.needs, isa=machine.environment.identity.isa)
            if not missing and forms.nearest(candidate.model.form, target.forms) is None:
                missing = [f"no way from {candidate.model.form} to {' or '.join(target.forms)}"]
            out[name] = ", ".join(missing)
        return out
