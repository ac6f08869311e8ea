"""The public JSON of runs, machines and diagnoses, and the schemas that describe it.

Why apart from ``records.to_data``: the store's JSON is ours to migrate, this one is read by other
people's scripts. Its names are those of the field (``levers``, ``speedup``), each outcome carries its
cause and next step in words, and ``schemas/`` states it. It refuses NaN and Inf; null is unknown.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from ironlaw.records import Change, Diagnosis, Machine, Measurement, Run, Trial, to_data


def run_data(run: Run) -> dict[str, Any]:
    """A run as the JSON document ``ironlaw.run/1`` (``schemas/run-1.json``).

    ``best`` and ``frontier`` hold ids of ``baseline`` or of members of ``trials``.

    Raises:
        ValueError: the run holds NaN or Inf.
    """
    return {
        "schema": run.schema,
        "id": run.id,
        "created": run.created,
        "name": run.name,
        "goal": to_data(run.goal),
        "satisfied": run.satisfied,
        "floor": to_data(run.floor),
        "spent_s": to_data(run.spent_s),
        "environment": to_data(run.environment),
        "machine": machine_data(run.machine),
        "baseline": trial_data(run.baseline),
        "trials": [trial_data(trial) for trial in run.trials],
        "frontier": list(run.frontier),
        "best": run.best,
        "refused": to_data(run.refused),
        "account": list(run.account),
        "diagnosis": diagnosis_data(run.diagnosis),
        "best_diagnosis": None if run.best_diagnosis is None else diagnosis_data(run.best_diagnosis),
    }


def trial_data(trial: Trial) -> dict[str, Any]:
    """One trial in the shape of ``run-1.json``: what was predicted, measured, kept and proven."""
    return {
        "id": trial.id,
        "label": trial.label,
        "reused": trial.reused,
        "levers": [_lever(change) for change in trial.changes],
        "outcome": str(trial.outcome),
        "reason": trial.reason,
        "cause": trial.outcome.cause,
        "next_step": trial.outcome.next_step,
        "predicted": to_data(trial.predicted),
        "measured": None if trial.measured is None else _measured(trial, trial.measured),
        "quality": to_data(trial.quality),
        "certificate": to_data(trial.certificate),
        "execution": to_data(trial.execution),
        "artefact": to_data(trial.artefact),
        "spent_s": to_data(trial.spent_s),
    }


def machine_data(machine: Machine) -> dict[str, Any]:
    """A machine as ``ironlaw.machine/1`` (``schemas/machine-1.json``)."""
    data: dict[str, Any] = to_data(machine)
    return {"schema": data.pop("schema"), **data}


def diagnosis_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis as ``ironlaw.diagnosis/1`` (``schemas/diagnosis-1.json``)."""
    data: dict[str, Any] = to_data(diagnosis)
    if diagnosis.energy is not None:
        data["energy"]["parts"] = dict(diagnosis.energy.parts)
    return {"schema": data.pop("schema"), **data}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema that ships as ``schemas/<name>.json``: ``run-1``, ``machine-1`` or ``diagnosis-1``."""
    text = resources.files("ironlaw").joinpath("schemas", f"{name}.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _lever(change: Change) -> dict[str, Any]:
    data: dict[str, Any] = to_data(change)
    return {"name": data.pop("lever"), **data}


def _measured(trial: Trial, measured: Measurement) -> dict[str, Any]:
    gain = trial.gain
    speedup = None if gain is None else {**to_data(gain), "proven": gain.proven}
    return {**to_data(measured), "speedup": speedup}
