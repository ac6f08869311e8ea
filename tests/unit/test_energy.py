"""Energy: modelled from a ledger by published events, counted by zeus where it finds a counter, else unknown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType

import pytest

from ironlaw.diagnose.energy import modelled
from ironlaw.measure import energy
from ironlaw.records import Ledger, Op

PRODUCT = Op(name="mm", kind="matmul", calls=1, flops=2e9, bytes_low=8e6, bytes_high=16e6)
PJ = 1e-12


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    energy.counter.cache_clear()
    yield
    energy.counter.cache_clear()


def ledger(*ops: Op) -> Ledger:
    return Ledger(ops=ops, batch=1, source="test")


def test_parts_are_events_times_published_energies() -> None:
    found = modelled(ledger(PRODUCT), precision="fp32")
    parts = dict(found.parts)
    assert found.source == "modelled"
    assert parts["arithmetic"] == pytest.approx(1e9 * (1.31 + 0.38) * PJ)
    assert parts["memory"] == pytest.approx(1e6 * 1300 * PJ)
    assert parts["caches"] == pytest.approx(2e6 * 14 * PJ)
    assert found.value == pytest.approx(sum(parts.values()))


def test_narrower_arithmetic_takes_less() -> None:
    whole, half = (modelled(ledger(PRODUCT), precision=p) for p in ("fp32", "bf16"))
    int8 = modelled(ledger(replace(PRODUCT, dtype="int8", bytes_low=2e6, bytes_high=4e6)), precision="fp32")
    assert int8.value < half.value < whole.value
    assert dict(half.parts)["memory"] == pytest.approx(dict(whole.parts)["memory"] / 2)


@pytest.mark.parametrize(
    ("op", "precision"),
    [
        (replace(PRODUCT, flops=None), "fp32"),
        (replace(PRODUCT, dtype="float64"), "fp32"),
        (PRODUCT, "fp8"),
    ],
    ids=["not counted", "dtype without a published energy", "precision without one"],
)
def test_what_is_not_known_is_null(op: Op, precision: str) -> None:
    assert modelled(ledger(PRODUCT, op), precision=precision).value is None


def test_another_forms_ledger_and_an_empty_one_say_nothing() -> None:
    assert modelled(ledger(PRODUCT), precision="fp32", own_form=False).source == "unknown"
    assert modelled(ledger(), precision="fp32").value is None


@dataclass
class Reading:
    cpu_mj: float
    dram_mj: float | None


class Packages:
    """What zeus gives: totals in millijoules that grow."""

    def __init__(self, *readings: Reading) -> None:
        self.readings = readings

    def __len__(self) -> int:
        return len(self.readings)

    def get_total_energy_consumption(self, index: int) -> Reading:
        return self.readings[index]


def zeus(monkeypatch: pytest.MonkeyPatch, packages: Packages | Exception) -> None:
    def get_cpus() -> Packages:
        if isinstance(packages, Exception):
            raise packages
        return packages

    device = ModuleType("zeus.device")
    device.get_cpus = get_cpus  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zeus", ModuleType("zeus"))
    monkeypatch.setitem(sys.modules, "zeus.device", device)


def test_all_packages_and_their_memory_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = Packages(Reading(1500.0, None), Reading(1000.0, 250.0))
    zeus(monkeypatch, packages)
    read = energy.counter()
    assert read is not None
    before = read()
    assert before == pytest.approx(2.75)
    packages.readings[0].cpu_mj += 2000.0
    assert read() - before == pytest.approx(2.0)


@pytest.mark.parametrize("packages", [RuntimeError("no RAPL"), Packages()], ids=["refused", "none"])
def test_no_counter_is_none(monkeypatch: pytest.MonkeyPatch, packages: Packages | Exception) -> None:
    zeus(monkeypatch, packages)
    assert energy.counter() is None


def test_without_zeus_there_is_no_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeus.device", None)
    assert energy.counter() is None
