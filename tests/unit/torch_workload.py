"""Small torch workloads, a synthetic machine and synthetic diagnoses, for the tests of levers, forms and targets."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import nn

from ironlaw.measure.ledger import ledger_of
from ironlaw.records import (
    Cache,
    Candidate,
    Ceiling,
    Conditions,
    Diagnosis,
    Environment,
    Execution,
    Gain,
    Goal,
    Identity,
    Interval,
    KernelRate,
    Ledger,
    Loader,
    Machine,
    Op,
    Snapshot,
    StepTimes,
    Term,
    TermTime,
    exactly,
)
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.snapshot import read_snapshot, snapshot

SIDE = 12
_STORE = tempfile.TemporaryDirectory(prefix="ironlaw-tests-")
_SEEN: dict[str, Path] = {}


class Cnn(nn.Module):
    """Convolutions with and without bias, depthwise, batch norms that do something, dropout, a linear head."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding="same", groups=8)
        self.norm2 = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 5)
        for norm in (self.norm1, self.norm2):
            liven(norm)
        self.eval()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm1(self.stem(image)))
        x = torch.relu(self.norm2(self.depthwise(x)))
        return self.head(self.drop(x.mean((2, 3))))


class Mlp(nn.Module):
    """Two linear layers that are wide enough for groups of weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.up = nn.Linear(128, 256)
        self.down = nn.Linear(256, 64)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class TwoInputs(nn.Module):
    """Integer tokens and a mask, a product between them, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(20, 8)
        self.out = nn.Linear(8, 3)
        self.eval()

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = (self.table(tokens) * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return self.out(x), x


class PinsItsBatch(nn.Module):
    """Works at any multiple of its batch only in eager; an export cannot keep the batch free."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.out = nn.Linear(6, 4)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = int(x.shape[0])
        return self.out(x) * (1.0 + 0.0 * len(range(rows)))


def liven(norm: Any) -> None:
    """Statistics and weights that are not the identity."""
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
        norm.weight.normal_(1.0, 0.3)
        norm.bias.normal_()


def image(batch: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((batch, 3, SIDE, SIDE), dtype=np.float32))


def candidate(
    folder: Path, model: nn.Module | None = None, example: Any = None, *, goal: Goal | None = None, **execution: Any
) -> Candidate:
    """A candidate of a torch model, snapshotted as a run does it; calibration is the example itself."""
    model = Cnn() if model is None else model
    example = image() if example is None else example
    taken = _taken(model, example, folder)
    fields = {"batch": taken.batch, **execution}
    return Candidate(snapshot=taken, model=taken.model, execution=Execution(**fields), goal=goal or Goal())


def _taken(model: nn.Module, example: Any, folder: Path) -> Snapshot:
    """The snapshot in ``folder``. Checking a model takes seconds: one that was seen before is copied instead."""
    key = hashlib.sha256(cloudpickle.dumps((model, example))).hexdigest()
    if key not in _SEEN:
        workload = Inference(model=model, example=example, calibrate=[example])
        _SEEN[key] = Path(snapshot(workload, Path(_STORE.name), "small").folder)
    there = folder.resolve() / _SEEN[key].name
    if not there.exists():
        shutil.copytree(_SEEN[key], there)
    return read_snapshot(there)


def machine(*, cores: int = 4, narrow: bool = True, isa: tuple[str, ...] = ("avx512f", "avx512_vnni")) -> Machine:
    """100 GFLOP/s a thread in fp32; 20 GB/s, half of it for one thread.

    Where ``narrow``, bf16 and fp16 reach twice that and int8 four times; else they are emulated at a thousandth.
    """
    times = {"fp32": 1.0, "bf16": 2.0, "fp16": 2.0, "int8": 4.0}
    rates = {d: 100e9 * (t if narrow or d == "fp32" else 1e-3) for d, t in times.items()}
    identity = Identity(
        cpu="synthetic", architecture="x86_64", isa=isa, cores=cores, memory_bytes=1 << 34, os="Linux", python="3"
    )
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None)
    ceilings = [ceiling("dispatch", 2e-6), ceiling("fault", 1e-6)]
    for threads in (1, 2, 4):
        ceilings += [ceiling("matmul", rate * threads, dtype=d, threads=threads) for d, rate in rates.items()]
        ceilings += [ceiling("dram", min(20e9, 10e9 * threads), threads=threads)]
        ceilings += [ceiling("cache", 100e9 * threads, threads=threads)]
    return Machine(
        environment=Environment(identity=identity, conditions=conditions),
        ceilings=tuple(ceilings),
        caches=(Cache(level=3, size_bytes=1 << 25, bandwidth_bytes_per_s=100e9, source="synthetic"),),
        kernels=tuple(kernels(("torch", "onnxruntime", "openvino"), rates)),
    )


def ceiling(name: str, value: float, *, dtype: str | None = None, threads: int = 1) -> Ceiling:
    return Ceiling(name=name, unit="", value=value, low=0.95 * value, high=1.05 * value, dtype=dtype, threads=threads)


def kernels(targets: Iterable[str], rates: dict[str, float]) -> Iterable[KernelRate]:
    """Half of each ceiling for arithmetic, 10 GB/s for the rest."""
    arithmetic = ("conv", "depthwise", "matmul")
    for target, (dtype, peak) in itertools.product(targets, rates.items()):
        for kind in (*arithmetic, "elementwise", "norm", "pool", "reduce", "softmax", "copy"):
            value = peak / 2 if kind in arithmetic else 10e9
            yield KernelRate(
                target=target, kind=kind, dtype=dtype, threads=1, unit="FLOP/s" if kind in arithmetic else "B/s",
                rate=Interval(low=0.7 * value, value=value, high=1.3 * value), call_s=1e-6, shapes=8,
            )  # fmt: skip


def diagnosis(
    ops: Iterable[Op] = (),
    *,
    total_s: float = 10e-3,
    batch: int = 1,
    target: str = "torch",
    threads: int = 1,
    **shares: float,
) -> Diagnosis:
    """Terms by their share of ``total_s``; what is left is the residual."""
    given = {Term(name): share for name, share in shares.items()}
    given[Term.RESIDUAL] = 1.0 - sum(given.values())
    return Diagnosis(
        total_s=total_s,
        terms=tuple(TermTime(term=t, seconds=exactly(s * total_s), evidence="synthetic") for t, s in given.items()),
        dominant=None,
        why="synthetic",
        ledger=Ledger(ops=tuple(ops), batch=batch, source="synthetic"),
        bounds=(),
        target=target,
        threads=threads,
    )


def counted(of: Candidate, **shares: float) -> Diagnosis:
    """A diagnosis whose ledger is the candidate's own, each operator timed by its share of the traffic."""
    ledger = ledger_of(of.snapshot.model, of.snapshot, of.execution.batch, cache_bytes=None)
    made = diagnosis(batch=ledger.batch, target=of.execution.target, threads=of.execution.threads, **shares)
    busy = 0.6 * made.total_s
    ops = tuple(dataclasses.replace(op, time_s=busy * op.bytes_high / ledger.bytes_high) for op in ledger.ops)
    return dataclasses.replace(made, ledger=dataclasses.replace(ledger, ops=ops))


def op(
    name: str, kind: str, seconds: float | None = None, *, calls: int = 1, traffic: float = 1e6, **fields: Any
) -> Op:
    return Op(
        name=name, kind=kind, calls=calls, flops=fields.pop("flops", 1e6), bytes_low=fields.pop("bytes_low", traffic),
        bytes_high=traffic, time_s=seconds, **fields,
    )  # fmt: skip


def step_times(**changed: Any) -> StepTimes:
    """10 ms: 4 waiting, 2 forward, 3 backward, 0.9 optimiser, 0.1 rest; 6 on cached input, all of it CPU time."""
    parts = {
        "wait": exactly(0.004), "restart": exactly(0.0), "copy": exactly(0.0), "forward": exactly(0.002),
        "backward": exactly(0.003), "optimiser": exactly(0.0009), "rest": exactly(0.0001), **changed,
    }  # fmt: skip
    total = sum(parts[name].value for name in ("wait", "restart", "copy", "forward", "backward", "optimiser", "rest"))
    rest: dict[str, Any] = {
        "total": exactly(total), "cached": exactly(0.006), "contention": exactly(0.0), "faults": 0.0, "cpu_s": 0.006,
        "system_s": 0.0, "foreign_cpu": 0.0, "device": "cpu", "batch": 32, "steps": 100, "blocks": 10, "launches": 3,
        "gain": Gain(median=total / 0.006, low=1.6, high=1.8, floor=1.0, settled=True, launches=3),
    }  # fmt: skip
    return StepTimes(**{**rest, **parts})


def job_loader(**changed: Any) -> Loader:
    """A DataLoader without workers: 3.8 ms to fetch a batch and 0.2 to collate, all of it CPU time."""
    facts: dict[str, Any] = {
        "kind": "DataLoader", "fetch_s": 0.0038, "collate_s": 0.0002, "cpu_share": 1.0, "batches": 50, "samples": 1600,
        "sample_bytes": 1024, "repeats": True, "slices": True,
    }  # fmt: skip
    return Loader(**{**facts, **changed})


def job_diagnosis(
    ops: Iterable[Op] = (), *, step: StepTimes | None = None, loader: Loader | None = None, threads: int = 4
) -> Diagnosis:
    """That step with that loader as a diagnosis."""
    found = diagnosis(ops, total_s=0.010, batch=32, threads=threads, io=0.4, compute=0.5, memory=0.05)
    return dataclasses.replace(found, step=step or step_times(), loader=loader or job_loader())
