"""Energy per event: the figures of the papers and what they are quoted for."""

import pytest

from ironlaw.laws import energy


@pytest.mark.parametrize(
    ("process", "event", "picojoules"),
    [
        ("45nm", "fp32_mul", 3.7),
        ("45nm", "fp32_add", 0.9),
        ("45nm", "int8_add", 0.03),
        ("45nm", "int32_mul", 3.1),
        ("45nm", "sram_1mb_64bit", 100),
        ("45nm", "dram_64bit", 1300),
        ("7nm", "fp32_mul", 1.31),
        ("7nm", "int8_mul", 0.07),
        ("7nm", "sram_1mb_64bit", 14),
    ],
)
def test_published_events(process, event, picojoules):
    assert energy.event_j(event=event, process=process) == pytest.approx(picojoules * 1e-12)
    assert energy.event_j(event=event, process=process, scale=0.5) == pytest.approx(picojoules * 0.5e-12)


def test_what_the_tables_are_quoted_for():
    """Horowitz: a 32-bit DRAM read (half of 1.3 nJ) costs over a hundred fp32 MACs, an int8 MAC 14 times less."""
    dram_32bit = energy.event_j(event="dram_64bit") / 2
    assert 100 < dram_32bit / energy.mac_j(dtype="fp32") < 200
    assert energy.mac_j(dtype="fp32") == pytest.approx(4.6e-12)
    assert energy.mac_j(dtype="fp32") / energy.mac_j(dtype="int8") == pytest.approx(4.6 / 0.3)
    assert energy.mac_j(dtype="bf16", process="7nm") == pytest.approx((0.21 + 0.38) * 1e-12)


def test_a_run_is_the_sum_of_its_parts():
    parts = energy.run_j(flops=2e9, dtype="fp32", dram_bytes=8e6, sram_bytes=8e6, idle_w=2, time_s=0.5)
    assert parts["compute_j"] == pytest.approx(4.6e-3)
    assert parts["dram_j"] == pytest.approx(1.3e-3)
    assert parts["sram_j"] == pytest.approx(1e-4)
    assert parts["static_j"] == 1.0
    assert parts["total_j"] == pytest.approx(sum(v for k, v in parts.items() if k != "total_j"))


def test_counts_of_events():
    found = energy.events_j({"fp32_mul": 1000, "dram_64bit": 2})
    assert found == pytest.approx({"fp32_mul": 3.7e-9, "dram_64bit": 2.6e-9})


def test_narrower_arithmetic_never_costs_more():
    for table in energy.TABLES.values():
        for operation in ("add", "mul"):
            cost = [table.joules[f"{dtype}_{operation}"] for dtype in ("int8", "fp16", "fp32")]
            assert cost == sorted(cost)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: energy.event_j(event="bf16_mul"), "'bf16_mul' is not in the 45nm table; it holds int8_add"),
        (lambda: energy.event_j(event="fp32_mul", process="3nm"), "process must be one of 45nm, 7nm"),
        (lambda: energy.mac_j(dtype="fp64"), "dtype must be one of"),
        (lambda: energy.run_j(flops=1, dtype="fp32", dram_bytes=-1), "dram_bytes must be at least 0"),
        (lambda: energy.events_j({"fp32_mul": -1}), "fp32_mul must be at least 0"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
