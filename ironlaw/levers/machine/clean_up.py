"""Inference graph clean-up: evaluation mode, batch norm folded into convolutions, dropout gone, constants computed.

Why: a batch norm after a convolution is a pass over the activations that two small vectors make
needless. The work is :mod:`ironlaw.forms.clean`, which checks the result against the original; the prediction is
Amdahl over the batch norms of the ledger plus the Python of module calls, which an exported graph does
not have. It refuses graphs with nothing to fold, and runtimes that fold by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ironlaw import forms, predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.levers._torch import for_torch
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Form, Interval, Kind, Machine, Op, Prediction, Term

_EXPORT_S = 5.0
_FOLDED = ("batch_norm", "dropout")


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanUpSettings:
    """Nothing to choose."""


class CleanUp:
    """Folds, drops and precomputes in the exported graph."""

    name: ClassVar[str] = "clean_up"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.MEMORY, Term.LATENCY, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"graph.structure"})
    consumes: ClassVar[frozenset[str]] = frozenset({Form.EXPORTED})
    produces: ClassVar[str] = Form.EXPORTED
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch"})
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "Jacob et al. 2018, Quantization and training of neural networks, CVPR, eq. 14"
    Settings: ClassVar[type] = CleanUpSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        asked = for_torch(candidate, "the clean-up")
        if not asked:
            return No(f"{candidate.execution.target} folds its graph by itself")
        if forms.route(candidate.model.form, Form.EXPORTED) is None:
            return No(f"a model in the form {candidate.model.form} cannot become an exported program")
        if not _foldable(diagnosis):
            return No("nothing to fold: the ledger has no batch norm and no dropout")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        return [Option(settings=CleanUpSettings(), cost_s=_EXPORT_S)]

    def predict(
        self, candidate: Candidate, settings: CleanUpSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """The folded operators go; of the other dispatch, the Python of modules goes when the model was eager."""
        found = _foldable(diagnosis)
        seconds = sum(_seconds(op, diagnosis) for op in found)
        python = 0.2 * diagnosis.seconds(Term.LATENCY) if candidate.model.form == Form.EAGER else 0.0
        total = diagnosis.total_s
        touched = Interval(
            low=0.7 * seconds,
            value=min(0.9 * total, seconds + python),
            high=min(0.9 * total, 1.3 * seconds + 2 * python),
        )
        calls = sum(op.calls for op in found)
        return predict.amdahl(
            diagnosis,
            seconds=touched,
            factor=Interval(low=5.0, value=50.0, high=1000.0),
            basis=f"{calls} batch norms and dropouts are folded or dropped",
        )

    def apply(self, candidate: Candidate, settings: CleanUpSettings) -> tuple[Candidate, Change]:
        """Write the cleaned program into the workspace; a graph with nothing to clean is a no-op.

        Raises:
            ArithmeticError: the cleaned graph does not compute the same.
        """
        from ironlaw.forms import clean, exported
        from ironlaw.records import ModelFile

        found = clean.clean(exported.load(Path(candidate.model.path)), candidate.snapshot)
        if not found.changed:
            return changed(self, candidate, settings)
        path = Path(candidate.workspace) / "cleaned.pt2"
        model = ModelFile(form=Form.EXPORTED, path=str(path), digest=exported.save(found.program, path))
        facts: dict[str, int | float | str | bool | None] = {
            "folded": found.folded,
            "dropped": found.dropped,
            "precomputed": found.precomputed,
        }
        return changed(self, candidate, settings, model=model, facts=facts)


def _foldable(diagnosis: Diagnosis) -> tuple[Op, ...]:
    return tuple(op for op in diagnosis.ledger.ops if any(word in op.name.lower() for word in _FOLDED))


def _seconds(op: Op, diagnosis: Diagnosis) -> float:
    """Measured where profiled, else its share of the traffic."""
    if op.time_s is not None:
        return op.time_s
    traffic = diagnosis.ledger.bytes_high
    return diagnosis.total_s * op.bytes_high / traffic if traffic else 0.0
