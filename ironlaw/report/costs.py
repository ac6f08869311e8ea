"""What a call or step costs besides time, as rows for the terminal and the page: energy and peak memory by part."""

from __future__ import annotations

from ironlaw.records import Diagnosis, Energy, TrainingMemory
from ironlaw.report import units

Row = tuple[str, str, str]
"""Part, amount, share of the whole."""


def energy_rows(energy: Energy | None) -> list[Row]:
    """Each part of the energy, the largest first; [] where none is known."""
    if energy is None or not energy.value:
        return []
    whole = energy.value
    parts = [(name, float(value)) for name, value in energy.parts if isinstance(value, int | float)]
    ranked = sorted(parts, key=lambda part: -part[1])
    return [(name, units.joules(value), units.percent(value / whole)) for name, value in ranked]


def energy_title(diagnosis: Diagnosis) -> str:
    """``energy of a call: 12 µJ, modelled``, with what moving data costs for each joule of arithmetic."""
    energy = diagnosis.energy
    if energy is None or energy.value is None:
        return f"energy of a {units.call_or_step(diagnosis)}: unknown"
    title = f"energy of a {units.call_or_step(diagnosis)}: {units.joules(energy.value)}, {energy.source}"
    parts = {name: float(value) for name, value in energy.parts if isinstance(value, int | float)}
    if not parts.get("arithmetic"):
        return title
    moved = (energy.value - parts["arithmetic"]) / parts["arithmetic"]
    return f"{title}; moving data takes {units.ratio(moved)} what arithmetic does"


def memory_rows(memory: TrainingMemory) -> list[Row]:
    """Each part of the live tensors at the peak, then what the allocator and the system add."""
    parts = ("parameters", "gradients", "optimiser", "activations", "temporaries", "inputs")
    sizes = [(name, float(getattr(memory, f"{name}_bytes"))) for name in parts]
    rows = [(name, units.size(size), units.percent(size / memory.tensor_bytes)) for name, size in sizes]
    resident = memory.resident_bytes
    return [
        *rows,
        ("all tensors", units.size(memory.tensor_bytes), f"at {memory.moment}"),
        ("allocated", units.size(memory.allocated_bytes), "with what kernels take for themselves"),
        ("resident", units.size(resident.value), f"{units.size(resident.low)} to {units.size(resident.high)}"),
    ]
