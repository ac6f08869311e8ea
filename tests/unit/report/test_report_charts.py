"""Charts put each number where it belongs: positions are checked against the scales' own arithmetic."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from xml.etree import ElementTree

import factory
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.records import Interval, Op, Term
from ironlaw.report import frontier, marks, predictions, roofline, svg, terms

SIZES = (svg.WIDE, svg.NARROW)


def parse(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawing)


def of_class(tree: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [e for e in tree.iter() if name in e.get("class", "").split()]


@given(low=st.floats(1e-6, 1e6), factor=st.floats(2.0, 1e9), count=st.integers(3, 8))
def test_log_ticks_are_round_inside_rising_and_few(low: float, factor: float, count: int) -> None:
    scale = svg.Scale(low=low, high=low * factor, start=0, end=100, log=True)
    ticks = scale.ticks(count)
    assert ticks
    assert len(ticks) <= count + 1
    assert all(a < b for a, b in itertools.pairwise(ticks))
    assert all(low * 0.99 <= t <= low * factor * 1.01 for t in ticks)


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), count=st.integers(2, 8))
def test_linear_ticks_are_even_and_inside(low: float, width: float, count: int) -> None:
    ticks = svg.Scale(low=low, high=low + width, start=0, end=1).ticks(count)
    steps = [b - a for a, b in itertools.pairwise(ticks)]
    assert 1 <= len(ticks) <= count + 1
    assert all(s == pytest.approx(steps[0], rel=1e-3) for s in steps)
    assert ticks[0] >= low - width * 1e-6
    assert ticks[-1] <= low + width * (1 + 1e-6)


def test_scales_map_ends_middle_and_clamp() -> None:
    log = svg.Scale(low=1, high=100, start=0, end=200, log=True)
    assert [log(v) for v in (1, 10, 100, 1000, 0.1)] == [0, 100, 200, 200, 0]
    down = svg.Scale(low=0, high=10, start=300, end=100)
    assert [down(v) for v in (0, 5, 10)] == [300, 200, 100]


def test_elements_escape_what_they_hold() -> None:
    made = svg.element("text", "<b>", data_tip='"&', class_="x", skipped=None)
    assert made == '<text data-tip="&#34;&amp;" class="x">&lt;b&gt;</text>'


@pytest.mark.parametrize("size", SIZES, ids=lambda s: s.name)
@pytest.mark.parametrize("metric", frontier.metrics(factory.full_run()), ids=lambda m: m.name)
def test_every_measured_trial_is_on_the_frontier_chart_once(metric: frontier.Metric, size: svg.Size) -> None:
    run = factory.full_run()
    tree = parse(frontier.draw(run, metric, size))
    points = of_class(tree, "point")
    measured = [n for n, t in marks.numbered(run) if t.measured]
    assert [int(p.get("data-trial", "")) for p in points] == measured
    assert all(p.get("href") == f"#trial-{n}" for p, n in zip(points, measured, strict=True))
    hits = {n: p.find("circle[@class='hit']") for p, n in zip(points, measured, strict=True)}
    for hit in hits.values():
        assert hit is not None
        assert 0 <= float(hit.get("cx", "")) <= size.width
        assert 0 <= float(hit.get("cy", "")) <= size.height
    height = {n: float(h.get("cy", "")) for n, h in hits.items() if h is not None}
    gains = {n: marks.gain_of(run, t) or 0 for n, t in marks.numbered(run) if n in measured}
    assert sorted(height, key=lambda n: -height[n]) == sorted(gains, key=lambda n: gains[n]), "higher is better"


def test_a_trial_without_quality_stands_in_the_lane_and_not_at_zero() -> None:
    run = factory.full_run()
    metric = frontier.metrics(run)[0]
    tree = parse(frontier.draw(run, metric, svg.WIDE))
    at = {p.get("data-trial"): float(p.find("circle[@class='hit']").get("cx", "")) for p in of_class(tree, "point")}  # type: ignore[union-attr]
    (lane,) = of_class(tree, "lane")
    end = float(lane.get("x", "")) + float(lane.get("width", ""))
    unknown = {str(n) for n, t in marks.numbered(run) if t.measured and t.quality is None}
    assert unknown == {n for n, x in at.items() if x < end}


def test_the_pareto_line_is_what_brute_force_finds() -> None:
    run = factory.full_run(frontier=tuple(t.id for t in factory.trials() if t.gain))
    for metric in frontier.metrics(run):
        allowed = [s for s in frontier.spots(run, metric) if s.x is not None and s.trial.id != "t00"]
        best = {
            s.number
            for s in allowed
            if not any(
                o.x <= s.x and o.gain >= s.gain and (o.x, o.gain) != (s.x, s.gain)  # type: ignore[operator]
                for o in allowed
            )
        }
        assert {s.number for s in frontier.pareto(run, frontier.spots(run, metric))} == best


def test_labels_never_overlap() -> None:
    box = svg.Box(left=0, top=0, right=400, bottom=300)
    points = [(50.0 + 7 * i, 100.0 + (i % 3) * 5) for i in range(20)]
    labels = svg.Labels(box, points)
    areas = []
    for index, (x, y) in enumerate(points):
        found = re.search(r'x="([-\d.]+)" y="([-\d.]+)"', labels.place(x, y, f"#{index}"))
        if found:
            left, base = float(found[1]), float(found[2])
            areas.append((left, base - 11, left + len(f"#{index}") * svg.CHARACTER, base + 3))
    assert areas
    for a, b in itertools.combinations(areas, 2):
        assert a[2] <= b[0] + 0.1 or b[2] <= a[0] + 0.1 or a[3] <= b[1] + 0.1 or b[3] <= a[1] + 0.1


@pytest.mark.parametrize("share", [True, False])
def test_bars_have_the_length_of_their_seconds(share: bool) -> None:
    run = factory.full_run()
    tree = parse(terms.draw(run, svg.WIDE, share=share))
    rects = [r for r in tree.iter("rect") if r.get("class", "").startswith("term-")]
    width = svg.WIDE.width - 8
    expected = []
    for _, diagnosis in terms.rows(run):
        whole = diagnosis.total_s if share else run.diagnosis.total_s
        expected += [max(t.seconds.value / whole * width - 1.5, 0.5) for t in diagnosis.terms]
    assert [float(r.get("width", "")) for r in rects] == pytest.approx(expected, abs=0.02)


def test_a_negative_residual_has_no_length_and_no_crash() -> None:
    odd = factory.diagnosis(1e-3, {Term.COMPUTE: 1.2, Term.RESIDUAL: -0.2})
    run = factory.full_run(diagnosis=odd, best_diagnosis=None)
    tree = parse(terms.draw(run, svg.WIDE, share=False))
    assert [r.get("class") for r in tree.iter("rect")] == ["term-compute"]


def op(**more: float | None) -> Op:
    values = {"flops": 1e9, "bytes_low": 1e6, "bytes_high": 1e8, "time_s": 1e-2, **more}
    return Op(name="op", kind="conv", calls=1, **values)  # type: ignore[arg-type]


def test_an_operator_lies_at_its_intensity_interval_and_rate() -> None:
    diagnosis = dataclasses.replace(
        factory.diagnosis(), ledger=dataclasses.replace(factory.ledger(), ops=(op(), op(time_s=None), op(flops=None)))
    )
    (dot,) = roofline.dots(diagnosis)
    assert (dot.low, dot.high, dot.rate) == (10.0, 1000.0, 1e11)
    assert dot.middle == pytest.approx(100.0)
    assert roofline.intensity(op(bytes_low=0.0)) == (10.0, math.inf)
    assert roofline.intensity(op(flops=0.0)) is None


def test_roofs_meet_at_the_ridge() -> None:
    tree = parse(roofline.draw(factory.machine(), factory.diagnosis(), svg.WIDE))
    roofs = [line for line in of_class(tree, "roof") if line.tag == "line"]
    flat = [r for r in roofs if r.get("y1") == r.get("y2")]
    (cache,) = of_class(tree, "cache")
    top = min(flat, key=lambda r: float(r.get("y1", "")))
    assert (float(cache.get("x2", "")), float(cache.get("y2", ""))) == pytest.approx(
        (float(top.get("x1", "")), float(top.get("y1", ""))), abs=0.02
    )
    words = " ".join(tree.itertext())
    assert "fp32 188 GFLOP/s" in words, "two threads, as diagnosed, and not one"
    assert "below: fp16 100 MFLOP/s" in words
    assert "dram 31.0 GB/s, not settled" in words


def test_a_machine_without_ceilings_has_no_roofline_but_a_reason() -> None:
    run = factory.unknown_run()
    assert "not measured" in roofline.empty(run.machine, run.diagnosis)
    assert roofline.empty(factory.machine(), factory.diagnosis()) == ""


def test_a_right_prediction_lies_on_the_identity_line() -> None:
    exact = factory.trial("x", (factory.change("a"),), speedup=2.0, predicted=Interval(low=1.5, value=2.0, high=2.5))
    run = factory.full_run(trials=(exact,), frontier=("x",), best="x")
    tree = parse(predictions.draw(run, svg.WIDE))
    (identity,) = of_class(tree, "identity")
    (hit,) = of_class(tree, "hit")
    x1, y1, x2, y2 = (float(identity.get(k, "")) for k in ("x1", "y1", "x2", "y2"))
    across = (float(hit.get("cx", "")) - x1) / (x2 - x1)
    up = (float(hit.get("cy", "")) - y1) / (y2 - y1)
    assert across == pytest.approx(up, abs=1e-3)
