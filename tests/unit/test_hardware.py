"""The published machines: every number has a source, and those that vendors derive agree with each other."""

import math
import tomllib
from pathlib import Path

import pytest

from ironlaw import hardware
from ironlaw.records import UserError

FOLDER = Path(hardware.__file__).parent


def test_every_file_is_loaded_and_every_kind_is_there():
    assert set(hardware.machines()) | set(hardware.links()) == {p.stem for p in FOLDER.glob("*.toml")}
    assert {m.kind for m in hardware.machines().values()} == {"cpu", "gpu", "tpu", "mcu"}
    assert len(hardware.machines()) >= 12
    assert len(hardware.links()) >= 8


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda p: p.stem)
def test_every_number_names_a_document(path):
    data = tomllib.loads(path.read_text())
    tables = [v for v in data.values() if isinstance(v, dict) and "value" in v]
    tables += list(data.get("peak_flops_per_s", {}).values())
    assert tables
    for table in tables:
        assert set(table) == {"value", "source"}
        assert len(table["source"].split()) >= 2
    bare = {k for k, v in data.items() if isinstance(v, int | float)}
    assert bare == {"year"}


@pytest.mark.parametrize(
    ("name", "dtype", "flops_per_s", "bandwidth"),
    [
        ("v100-sxm2", "fp16", 125e12, 900e9),
        ("a100-sxm4-80gb", "bf16", 312e12, 2039e9),
        ("h100-sxm5", "bf16", 989.5e12, 3.35e12),
        ("h200-sxm5", "fp8", 1979e12, 4.8e12),
        ("t4", "int8", 130e12, 320e9),
        ("tpu-v4", "bf16", 275e12, 1200e9),
        ("tpu-v5e", "int8", 393e12, 819e9),
    ],
)
def test_published_figures(name, dtype, flops_per_s, bandwidth):
    machine = hardware.machine(name)
    assert machine.peak(dtype).value == flops_per_s
    assert machine.memory_bandwidth_bytes_per_s.value == bandwidth
    assert machine.ridge_flop_per_byte(dtype) == pytest.approx(flops_per_s / bandwidth)


def test_peaks_agree_with_units_times_clock():
    """A100: 108 SMs x 1024 dense fp16 FMA a cycle x 2 x 1.41 GHz; V100: 80 x 512 x 2 x 1.53 GHz (whitepapers)."""
    assert hardware.machine("a100-sxm4-80gb").peak("fp16").value == pytest.approx(108 * 1024 * 2 * 1.41e9, rel=0.005)
    assert hardware.machine("v100-sxm2").peak("fp16").value == pytest.approx(80 * 512 * 2 * 1.53e9, rel=0.005)
    assert hardware.machine("h100-sxm5").peak("fp16").value == pytest.approx(132 * 2048 * 2 * 1.83e9, rel=0.005)
    assert hardware.machine("epyc-7763").peak("fp32").value == pytest.approx(5.0176e12)
    assert hardware.machine("xeon-8380").peak("fp64").value == pytest.approx(2.944e12)
    assert hardware.machine("raspberry-pi-5").peak("fp32").value == pytest.approx(153.6e9)


def test_narrower_types_are_never_slower():
    order = ("fp64", "fp32", "tf32", "fp16", "fp8", "int4")
    for machine in hardware.machines().values():
        rates = [machine.peak(dtype).value for dtype in order if machine.peak(dtype)]
        assert rates == sorted(rates), machine.name
        for dtype, sourced in machine.peak_flops_per_s.items():
            assert math.log10(sourced.value) < 16, (machine.name, dtype)


def test_links_of_machines_exist_and_generations_double():
    for machine in hardware.machines().values():
        assert all(hardware.link(name) for name in machine.links)
    rates = [hardware.link(f"pcie{g}-x16").bandwidth_bytes_per_s.value for g in (3, 4, 5)]
    assert rates[1] / rates[0] == pytest.approx(2)
    assert rates[2] / rates[1] == pytest.approx(2)
    assert rates[1] == pytest.approx(31.5e9, rel=1e-3)
    assert hardware.link("nvlink4").bandwidth_bytes_per_s.value == 450e9
    assert hardware.link("ethernet-1g").latency_s is None


def test_unknown_names_list_what_exists():
    with pytest.raises(UserError, match="Did you mean a100-sxm4-40gb or a100-sxm4-80gb") as error:
        hardware.machine("A100")
    assert "tpu-v5e" in str(error.value)
    assert error.value.exit_code == 2
    with pytest.raises(UserError, match="nvlink4"):
        hardware.link("carrier-pigeon")


def test_what_is_not_published_is_absent():
    micro = hardware.machine("stm32f746")
    assert micro.peak("fp32") is None
    assert micro.memory_bandwidth_bytes_per_s is None
    assert micro.ridge_flop_per_byte("int16") is None
    assert micro.flash_bytes.value == 1024 * 1024


def test_a_number_without_source_is_refused():
    with pytest.raises(ValueError, match=r"made-up\.toml.*source"):
        hardware._machine("made-up", {"title": "x", "kind": "gpu", "power_w": {"value": 3, "source": ""}})
    with pytest.raises(ValueError, match="fp7"):
        hardware._machine("made-up", {"kind": "gpu", "peak_flops_per_s": {"fp7": {"value": 1, "source": "a b"}}})
