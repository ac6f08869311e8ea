"""The frozen records that cross every step of the loop, and their JSON form.

A record is the only thing that two steps share, so that a run can be stored, resumed and rendered again
years later without the code that made it. Only the standard library is imported here. Units are in the
names and SI inside; a prediction or a measured quantity is an :class:`Interval`; what is not known is
``None`` with a reason beside it, never 0.

vocabulary   kinds, axes, terms, objectives, forms, outcomes; UserError
numbers      intervals, gains, energy, budgets, the goal
machine      identity, conditions, ceilings, kernel rates
workload     snapshot, execution, change, candidate
diagnosis    operators, ledger, terms, bounds, findings, perturbations, other machines
training     the split of a training step, its loader and its peak memory
trial        prediction, measurement, gain, quality, certificate, artefact, trial, run
codec        JSON and content addresses
"""

from ironlaw.records.codec import (
    digest_of,
    from_data,
    from_json,
    to_data,
    to_json,
)
from ironlaw.records.diagnosis import (
    DIAGNOSIS_SCHEMA,
    Bound,
    Diagnosis,
    Elsewhere,
    Finding,
    Inspection,
    Ledger,
    Op,
    OpElsewhere,
    Perturbation,
    TermTime,
)
from ironlaw.records.forecast import PREDICTIONS_SCHEMA, Forecast
from ironlaw.records.machine import (
    MACHINE_SCHEMA,
    Cache,
    Ceiling,
    Conditions,
    Environment,
    Identity,
    KernelPoint,
    KernelRate,
    Machine,
    precision,
)
from ironlaw.records.numbers import (
    Budget,
    Energy,
    Gain,
    Goal,
    Interval,
    exactly,
)
from ironlaw.records.shown import Shown, drawn_by
from ironlaw.records.training import Loader, StepTimes, TrainingMemory
from ironlaw.records.trial import (
    RUN_SCHEMA,
    Artefact,
    Certificate,
    Measurement,
    Percentiles,
    Prediction,
    Quality,
    Refusal,
    Run,
    Trial,
)
from ironlaw.records.vocabulary import (
    Axis,
    Form,
    Kind,
    Objective,
    Outcome,
    OutcomeText,
    Pairs,
    Scalar,
    Term,
    UserError,
)
from ironlaw.records.workload import (
    Candidate,
    Change,
    Execution,
    ModelFile,
    Snapshot,
    TensorSpec,
)

__all__ = [
    "DIAGNOSIS_SCHEMA",
    "MACHINE_SCHEMA",
    "PREDICTIONS_SCHEMA",
    "RUN_SCHEMA",
    "Artefact",
    "Axis",
    "Bound",
    "Budget",
    "Cache",
    "Candidate",
    "Ceiling",
    "Certificate",
    "Change",
    "Conditions",
    "Diagnosis",
    "Elsewhere",
    "Energy",
    "Environment",
    "Execution",
    "Finding",
    "Forecast",
    "Form",
    "Gain",
    "Goal",
    "Identity",
    "Inspection",
    "Interval",
    "KernelPoint",
    "KernelRate",
    "Kind",
    "Ledger",
    "Loader",
    "Machine",
    "Measurement",
    "ModelFile",
    "Objective",
    "Op",
    "OpElsewhere",
    "Outcome",
    "OutcomeText",
    "Pairs",
    "Percentiles",
    "Perturbation",
    "Prediction",
    "Quality",
    "Refusal",
    "Run",
    "Scalar",
    "Shown",
    "Snapshot",
    "StepTimes",
    "TensorSpec",
    "Term",
    "TermTime",
    "TrainingMemory",
    "Trial",
    "UserError",
    "digest_of",
    "drawn_by",
    "exactly",
    "from_data",
    "from_json",
    "precision",
    "to_data",
    "to_json",
]
