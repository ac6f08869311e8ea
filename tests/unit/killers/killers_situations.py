"""Real small models, counted for real, on a machine of round numbers: what the detectors are tried on.

Times come from the machine's ceilings, not from a clock, so that no verdict depends on the host.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ironlaw.diagnose import diagnose
from ironlaw.diagnose.killers import Facts, findings
from ironlaw.measure.ledger_torch import count_module
from ironlaw.records import (
    Ceiling,
    Conditions,
    Energy,
    Environment,
    Execution,
    Finding,
    Identity,
    Ledger,
    Machine,
    Measurement,
    Op,
    Percentiles,
)

PEAK, DRAM, DISPATCH = 100e9, 20e9, 1e-6
RATES = {"fp32": PEAK, "bf16": 2 * PEAK, "fp16": 0.003 * PEAK, "int8": 4 * PEAK}


def ceiling(name: str, value: float, dtype: str | None = None, threads: int = 1) -> Ceiling:
    return Ceiling(name=name, unit="", value=value, low=0.95 * value, high=1.05 * value, dtype=dtype, threads=threads)


def machine(
    *extra: Ceiling,
    isa: tuple[str, ...] = ("avx", "avx2", "avx512f", "avx512_vnni"),
    cores: int = 4,
    accelerators: tuple[str, ...] = (),
    variables: tuple[tuple[str, str], ...] = (),
    without: tuple[str, ...] = (),
    rates: dict[str, float] = RATES,
) -> Machine:
    identity = Identity(
        cpu="c",
        architecture="x86_64",
        isa=isa,
        cores=cores,
        memory_bytes=1 << 34,
        os="o",
        python="p",
        accelerators=accelerators,
    )
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None, variables=variables)
    own = (
        *(ceiling("matmul", rate, dtype) for dtype, rate in rates.items()),
        ceiling("dram", DRAM),
        ceiling("dispatch", DISPATCH),
        ceiling("fault", 2e-6),
    )
    ceilings = tuple(one for one in (*own, *extra) if one.name not in without)
    return Machine(environment=Environment(identity=identity, conditions=conditions), ceilings=ceilings)


def measured(total_s: float, **more: Any) -> Measurement:
    fields: dict[str, Any] = {
        "latency_s": Percentiles(p50=total_s, p90=None, p99=None, mean=total_s, samples=9),
        "throughput_per_s": 1 / total_s,
        "batch": 1,
        "launches": 3,
        "blocks": 9,
        "peak_memory_bytes": 1 << 28,
        "size_bytes": 1 << 20,
        "load_s": 0.1,
        "prepare_s": 0.1,
        "warmup_calls": 9,
        "warm": True,
        "faults_per_call": 0.0,
        "system_s_per_call": 0.0,
        "cpu_s_per_call": total_s,
        "threads_effective": 1.0,
        "foreign_cpu": 0.0,
        "energy_j": Energy(value=None, source="unknown"),
    }
    return Measurement(**{**fields, **more})


def counted(module: torch.nn.Module, *inputs: torch.Tensor) -> Ledger:
    return count_module(module.eval(), inputs, batch=1)


def timed(ledger: Ledger, rates: dict[str, float] = RATES) -> Ledger:
    """Every operator takes its dispatches and what its roof allows."""
    names = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

    def seconds(op: Op) -> float:
        arithmetic = (op.flops or 0.0) / rates.get(names.get(op.dtype, op.dtype), PEAK)
        return op.calls * DISPATCH + max(arithmetic, op.bytes_high / DRAM)

    return dataclasses.replace(ledger, ops=tuple(dataclasses.replace(op, time_s=seconds(op)) for op in ledger.ops))


def facts(ledger: Ledger, host: Machine | None = None, execution: Execution | None = None, **more: Any) -> Facts:
    """The facts of a run whose time is that of its operators, plus ``idle_s``; measured fields by name."""
    host, execution = host or machine(), execution or Execution()
    known = {name: more.pop(name) for name in ("certificate", "inspection") if name in more}
    total_s = sum(op.time_s or 0.0 for op in ledger.ops) + more.pop("idle_s", 0.0) or 1e-3
    took = measured(total_s, **more)
    found = diagnose(ledger, took, host, execution)
    return Facts(ledger=found.ledger, terms=found.terms, measurement=took, machine=host, execution=execution, **known)


def found(kind: str, seen: Facts) -> Finding | None:
    return next((one for one in findings(seen) if one.kind == kind), None)


class Block(torch.nn.Module):
    """A healthy convolution network: whole channel counts, one layout, no reads."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = torch.nn.Conv2d(3, channels, 3, padding=1)
        self.body = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.head = torch.nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.body(torch.relu(self.stem(x))))
        return self.head(x.mean((2, 3)))


IMAGE = torch.zeros(4, 3, 32, 32)
