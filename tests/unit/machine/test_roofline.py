"""The table and the picture of a machine that we write down, with its geometry read back."""

import dataclasses
import re
import xml.etree.ElementTree as ET

import pytest

from ironlaw.machine.environment import environment
from ironlaw.machine.gate import ceiling, judge
from ironlaw.machine.roofline import roofs, svg, text
from ironlaw.machine.words import scaled
from ironlaw.records import Cache, Machine, Op

NS = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def machine():
    def of(name, unit, value, dtype=None, threads=1):
        return ceiling(name, unit, [0.98 * value, value, 1.02 * value], dtype=dtype, threads=threads)

    return Machine(
        environment=environment(),
        ceilings=(
            of("matmul", "FLOP/s", 100e9, "fp32"),
            of("matmul", "FLOP/s", 200e9, "fp32", 2),
            of("matmul", "FLOP/s", 800e9, "int8", 2),
            of("dram", "B/s", 40e9, threads=2),
            of("cache", "B/s", 160e9, threads=2),
            of("fault", "s", 2e-6),
            of("allocation_faults", "faults", 16385),
            dataclasses.replace(of("allocation_faults_kept", "faults", 0), note="64 MiB; MALLOC_TOP_PAD_=1"),
            judge(of("dispatch", "s", 1.1e-6), 0.5),
        ),
        caches=(Cache(level=3, size_bytes=28 << 20, bandwidth_bytes_per_s=1e11, source="sweep"),),
        notes=("openvino: not installed",),
    )


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (103.4e9, "FLOP/s", "103 GFLOP/s"),
        (1.9e-6, "s", "1.9 µs"),
        (0.0219, "s", "21.9 ms"),
        (999.9e9, "B/s", "1 TB/s"),
        (1e9, "", "1G"),
        (16385.0, "faults", "16.4 kfaults"),
        (0.5, "x", "0.5 x"),
        (0.0, "s", "0 s"),
        (100.0, "", "100"),
    ],
)
def test_scaled(value, unit, shown):
    assert scaled(value, unit) == shown


def test_text_names_every_ceiling_and_why_one_was_refused(machine):
    shown = text(machine)
    assert "200 GFLOP/s (197G to 203G)" in shown
    assert re.search(r"dispatch .*1\.1 µs .*\?", shown)
    assert "? dispatch at 1: others took 50% of the CPU time" in shown
    assert "ridge over dram at 2 threads, FLOP/B: fp32 5, int8 20" in shown
    assert "16,385 faults to use it again, 32.8 ms; kept with MALLOC_TOP_PAD_=1" in " ".join(shown.split())
    assert "28 MiB" in shown
    assert "note: openvino: not installed" in shown
    assert "\x1b" not in shown


def test_roofs_are_of_the_nearest_thread_count_fastest_first(machine):
    peaks, slopes = roofs(machine, 2)
    assert [(p.dtype, p.value) for p in peaks] == [("int8", 800e9), ("fp32", 200e9)]
    assert [s.name for s in slopes] == ["cache", "dram"]
    assert roofs(machine, 1) == ([machine.ceilings[0]], [])


def test_picture_is_one_well_formed_self_contained_svg(machine):
    shown = svg(
        machine, [Op(name="a<b>&c", kind="conv", calls=1, flops=1e9, bytes_low=1e7, bytes_high=1e8, time_s=0.02)]
    )
    root = ET.fromstring(shown)
    assert root.tag == f"{NS}svg"
    assert not re.search(r"(href|src|url\()", shown), "nothing from elsewhere"
    assert "prefers-color-scheme: dark" in shown
    titles = [t.text for t in root.iter(f"{NS}title")]
    assert any(t.startswith("a<b>&c: 50 GFLOP/s at 10 to 100 FLOP/B") for t in titles)


def test_ridges_lie_where_roof_and_slope_meet(machine):
    root = ET.fromstring(svg(machine))
    ridges = {c.find(f"{NS}title").text: c for c in root.iter(f"{NS}circle") if c.get("class") == "ridge"}
    assert set(ridges) == {
        "ridge of fp32 over dram: 5 FLOP/B",
        "ridge of fp32 over cache: 1.25 FLOP/B",
        "ridge of int8 over dram: 20 FLOP/B",
        "ridge of int8 over cache: 5 FLOP/B",
    }
    slopes = [line for line in root.iter(f"{NS}line") if line.get("class") == "slope"]
    levels = {line.get("y1") for line in root.iter(f"{NS}line") if line.get("class") == "roof"}
    assert len(slopes) == 2
    for circle in ridges.values():
        cx, cy = float(circle.get("cx")), float(circle.get("cy"))
        assert circle.get("cy") in levels
        assert any(_distance(line, cx, cy) < 0.5 for line in slopes)
    fp32 = float(ridges["ridge of fp32 over cache: 1.25 FLOP/B"].get("cx"))
    same = float(ridges["ridge of int8 over cache: 5 FLOP/B"].get("cx"))
    dram = float(ridges["ridge of fp32 over dram: 5 FLOP/B"].get("cx"))
    assert same == dram
    assert fp32 < same, "equal intensities share an abscissa"


def _distance(line, x, y):
    x1, y1, x2, y2 = (float(line.get(k)) for k in ("x1", "y1", "x2", "y2"))
    return abs((y2 - y1) * (x - x1) - (x2 - x1) * (y - y1)) / ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5


def test_unsettled_is_dashed_and_named(machine):
    refused = dataclasses.replace(
        machine, ceilings=tuple(judge(c, 0.9) if c.name == "dram" else c for c in machine.ceilings)
    )
    shown = svg(refused)
    assert 'class="slope refused"' in shown
    assert "dram 40 GB/s, unsettled" in shown
    assert "unsettled" not in svg(machine)


def test_operators_without_count_or_time_are_not_drawn(machine):
    ops = [
        Op(name="x", kind="view", calls=1, flops=None, bytes_low=1, bytes_high=1, time_s=1.0),
        Op(name="y", kind="conv", calls=1, flops=1e9, bytes_low=1, bytes_high=1, time_s=None),
    ]
    assert 'class="op"' not in svg(machine, ops)


def test_machine_without_ceilings_says_so(machine):
    bare = dataclasses.replace(machine, ceilings=(), caches=())
    assert "were not measured" in svg(bare)
    assert machine.environment.identity.cpu in text(bare)
