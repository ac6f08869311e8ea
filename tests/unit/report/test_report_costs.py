"""Energy and memory by part: shares of the whole, the largest first, and what moving data costs."""

from __future__ import annotations

import dataclasses
import io

import factory
from rich.console import Console

from ironlaw.records import Energy, Interval, Perturbation, Run, Term, TrainingMemory, exactly
from ironlaw.report import costs, units
from ironlaw.report.html import render
from ironlaw.report.terminal import diagnosis_table

PARTS = (("arithmetic", 1e-6), ("caches", 3e-6), ("memory", 6e-6))
ENERGY = Energy(value=10e-6, source="modelled", parts=PARTS)
MEMORY = TrainingMemory(
    parameters_bytes=100.0, gradients_bytes=100.0, optimiser_bytes=200.0, activations_bytes=500.0,
    temporaries_bytes=80.0, inputs_bytes=20.0, moment="backward: aten.mm", allocated_bytes=1100.0,
    resident_bytes=Interval(low=1200.0, value=1500.0, high=1900.0), source="predicted on fake tensors",
)  # fmt: skip


def test_parts_of_the_energy_are_ranked_and_moving_is_set_against_arithmetic() -> None:
    assert [(name, share) for name, _, share in costs.energy_rows(ENERGY)] == [
        ("memory", "60 %"), ("caches", "30 %"), ("arithmetic", "10 %"),
    ]  # fmt: skip
    diagnosis = dataclasses.replace(factory.diagnosis(), energy=ENERGY)
    assert "10.0 µJ, modelled; moving data takes 9.00× what arithmetic does" in costs.energy_title(diagnosis)


def test_energy_that_is_not_known_is_said_to_be() -> None:
    unknown = Energy(value=None, source="unknown")
    assert costs.energy_rows(unknown) == costs.energy_rows(None) == []
    assert costs.energy_title(dataclasses.replace(factory.diagnosis(), energy=unknown)).endswith("unknown")


def test_parts_of_the_memory_sum_to_the_tensors() -> None:
    rows = costs.memory_rows(MEMORY)
    assert rows[0] == ("parameters", "100 B", "10 %")
    assert rows[3] == ("activations", "500 B", "50 %")
    assert rows[6] == ("all tensors", "1.00 kB", "at backward: aten.mm")
    assert rows[8] == ("resident", "1.50 kB", "1.20 kB to 1.90 kB")


def seen() -> Run:
    one = Perturbation(
        name="cached input", term=Term.IO, seconds=exactly(0.004), confirms=True, evidence="it was slower"
    )
    diagnosis = dataclasses.replace(factory.diagnosis(), energy=ENERGY, memory=MEMORY, perturbations=(one,))
    return dataclasses.replace(factory.full_run(), diagnosis=diagnosis)


def test_the_page_and_the_terminal_show_them() -> None:
    page = render(seen())
    written = io.StringIO()
    Console(width=160, file=written).print(diagnosis_table(seen().diagnosis))
    for text in (page, written.getvalue()):
        lowered = " ".join(text.lower().split())
        assert "causes by perturbation" in lowered
        assert "confirmed" in lowered
        assert "peak memory of a step, predicted" in lowered
        assert "activations" in lowered
        assert "moving data takes" in lowered


def test_joules_have_small_prefixes_and_the_unknown_its_word() -> None:
    said = [units.joules(value) for value in (None, 0.0, 2e-13, 3e-12, 81e-3, 12.5, 4.2e3, -5e-6)]
    assert said == [
        units.UNKNOWN, "0 J", "0.200 pJ", "3.00 pJ", "81.0 mJ", "12.5 J", "4.20 kJ", "−5.00 µJ",
    ]  # fmt: skip
