"""What is run, and how: snapshot, model file, execution, change, candidate."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from ironlaw.records.numbers import Goal
from ironlaw.records.vocabulary import Kind, Pairs, Scalar


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """One input or output: axis 0 is the batch where ``batched``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    batched: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """A model in one form on disk. ``path`` is a file, or a folder for forms of several files."""

    form: str
    path: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """What a workload was when the user's function was called: all that workers ever see.

    ``folder`` holds ``example.npz`` and ``calibration.npz`` (arrays named ``<batch>.<input>``)
    and one folder a form under ``forms/``. ``dynamic`` says whether the batch axis may change, ``evaluated`` whether
    the user gave a way to judge what comes out. Of a training job the folder holds the packed job.
    """

    digest: str
    kind: Kind
    name: str
    folder: str
    model: ModelFile
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch: int
    dynamic: bool
    parameters: int
    weights_bytes: int
    calibration_batches: int = 0
    has_training_data: bool = False
    evaluated: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How a workload is run. ``variables`` are environment variables; ``options`` are the target's own.

    ``cpus`` is the affinity; empty means all that the process may use. ``precision`` is the
    arithmetic asked of the target (``fp32``, ``bf16``, ``fp16``); stored weights may be narrower.
    """

    target: str = "torch"
    batch: int = 1
    threads: int = 1
    cpus: tuple[int, ...] = ()
    replicas: int = 1
    precision: str = "fp32"
    variables: Pairs = ()
    options: Pairs = ()

    def option(self, name: str, default: Scalar = None) -> Scalar:
        return dict(self.options).get(name, default)

    def with_options(self, **options: Scalar) -> Execution:
        return dataclasses.replace(self, options=tuple(sorted({**dict(self.options), **options}.items())))

    def with_variables(self, variables: Mapping[str, str]) -> Execution:
        return dataclasses.replace(self, variables=tuple(sorted({**dict(self.variables), **variables}.items())))


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A lever applied, so that it can be replayed. ``facts`` is what was really changed."""

    lever: str
    version: int
    settings: Pairs
    claims: tuple[str, ...]
    facts: Pairs = ()
    no_op: bool = False

    def __str__(self) -> str:
        inside = ", ".join(f"{k}={v}" for k, v in self.settings)
        return f"{self.lever}({inside})" if inside else self.lever


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A workload in some form and an execution, with the changes that led to it.

    ``workspace`` is a folder in which a lever may write new model files; it never writes
    anywhere else. Before a build, a planned candidate has no workspace ("").
    """

    snapshot: Snapshot
    model: ModelFile
    execution: Execution
    goal: Goal
    changes: tuple[Change, ...] = ()
    workspace: str = ""

    @property
    def claimed(self) -> frozenset[str]:
        return frozenset(claim for change in self.changes for claim in change.claims)
