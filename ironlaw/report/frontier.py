"""The frontier: what each trial gained against what it costs in quality, size or memory.

Why gains and not latencies: the paired ratio is what was proven, and its interval is the honest error
bar. In all three views up and left is better. A trial whose quality was not evaluated stands in a lane
of its own, never at a drop of zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from ironlaw.records import Run, Trial
from ironlaw.report import marks, svg, units, words

LANE = 74.0
BUDGET_LABEL = 80.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One view: what lies on the horizontal axis."""

    name: str
    title: str
    value: Callable[[Trial], float | None]
    label: Callable[[float], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """One trial to draw; ``x`` is None when its value is unknown."""

    number: int
    trial: Trial
    x: float | None
    gain: float


def metrics(run: Run) -> tuple[Metric, ...]:
    """The views of a run."""
    relative = run.goal.max_drop.relative
    scale = next((t.quality.baseline for _, t in marks.numbered(run) if t.quality), 1.0)

    def label(value: float) -> str:
        return units.drop(value, relative=relative, metric_value=scale)

    def quality(trial: Trial) -> float | None:
        return trial.quality.drop if trial.quality else None

    def size(trial: Trial) -> float | None:
        return trial.measured.size_bytes if trial.measured else None

    def memory(trial: Trial) -> float | None:
        return trial.measured.peak_memory_bytes if trial.measured else None

    return (
        Metric(name="quality", title="quality drop, left is better", value=quality, label=label),
        Metric(name="size", title="size on disk, left is better", value=size, label=_size_tick),
        Metric(name="memory", title="peak memory, left is better", value=memory, label=_size_tick),
    )


def _size_tick(value: float) -> str:
    return units.scaled(value, "B", tidy=True)


def spots(run: Run, metric: Metric) -> list[Spot]:
    """Trials with a gain, in the order of the run."""
    found = []
    for number, trial in marks.numbered(run):
        gain = marks.gain_of(run, trial)
        if gain is not None and gain > 0:
            found.append(Spot(number=number, trial=trial, x=metric.value(trial), gain=gain))
    return found


def pareto(run: Run, found: list[Spot]) -> list[Spot]:
    """Those of the run's frontier that no other of it beats in this view, from left to right."""
    allowed = {run.best, *run.frontier}
    kept: list[Spot] = []
    for spot in sorted((s for s in found if s.x is not None), key=lambda s: (s.x or 0.0, -s.gain)):
        if spot.trial.id in allowed and (not kept or spot.gain > kept[-1].gain):
            kept.append(spot)
    return kept


def draw(run: Run, metric: Metric, size: svg.Size) -> Markup:
    """One view of the frontier at one size."""
    found = spots(run, metric)
    unknown = any(s.x is None for s in found)
    box = svg.Box.inside(size)
    start = box.left + (LANE if unknown else 0.0)
    x = _horizontal(run, metric, found, start, box.right)
    y = _vertical(run, found, box)
    count = 3 if size.narrow else 6
    title = f"{run.goal.objective}: times {words.BETTER[run.goal.objective]} than the baseline, up is better"
    if size.narrow:
        title = f"times {words.BETTER[run.goal.objective]}, up is better"
    parts = [
        svg.axes(
            box,
            svg.Axis(scale=x, title=metric.title, label=metric.label, count=count),
            svg.Axis(scale=y, title=title, label=lambda v: f"{units.tick(v)}×", count=6),
        ),
        _references(run, metric, box, x, y),
    ]
    if unknown:
        parts.append(_lane(box, size))
    places = {s.number: (box.left + LANE / 2 if s.x is None else x(s.x), y(s.gain)) for s in found}
    steps = [(x(s.x or 0.0), y(s.gain)) for s in pareto(run, found)]
    if len(steps) > 1:
        parts.append(svg.path(_staircase(steps), "frontier-line"))
    parts += [_mark(run, metric, spot, places[spot.number], x, y) for spot in found]
    parts.append(_labels(run, found, places, box))
    return svg.chart(size, f"Frontier: {run.goal.objective} gain against {metric.name}", *parts)


def _horizontal(run: Run, metric: Metric, found: list[Spot], start: float, end: float) -> svg.Scale:
    values = [s.x for s in found if s.x is not None]
    if metric.name == "quality":
        budget = run.goal.max_drop.amount
        ends = [v for s in found if s.trial.quality for v in (s.trial.quality.low, s.trial.quality.high)]
        near = [v for v in ends if v is not None and abs(v) <= 4 * max(budget, *(abs(x) for x in values), 1e-6)]
        return svg.linear([*values, *near, 0.0, budget], start, end)
    if values and max(values) > 20 * max(min(values), 1.0):
        return svg.logarithmic([max(v, 1.0) for v in values], start, end)
    return svg.linear([*values, 0.0], start, end)


def _vertical(run: Run, found: list[Spot], box: svg.Box) -> svg.Scale:
    ends = [v for s in found if s.trial.gain for v in (s.trial.gain.low, s.trial.gain.high)]
    return svg.logarithmic([s.gain for s in found] + ends + [1.0, run.floor], box.bottom, box.top)


def _references(run: Run, metric: Metric, box: svg.Box, x: svg.Scale, y: svg.Scale) -> Markup:
    """The baseline's level, the smallest gain that can be claimed, and the budget."""
    floor = max(run.floor, 1.0)
    top, level = y(floor), y(1.0)
    band = svg.element(
        "rect", x=box.left, y=top, width=box.right - box.left, height=max(level - top, 1.0), class_="band"
    )
    parts = [band]
    if metric.name == "quality":
        at = x(run.goal.max_drop.amount)
        parts.append(svg.line(at, box.top, at, box.bottom, "budget"))
        fits = at + BUDGET_LABEL < box.right
        label, anchor = f"budget {run.goal.max_drop}", "start" if fits else "end"
        parts.append(svg.text(at + (6 if fits else -6), box.bottom - 8, label, "note", anchor))
    return svg.group(*parts)


def _lane(box: svg.Box, size: svg.Size) -> Markup:
    at = box.left + LANE
    return svg.group(
        svg.element("rect", x=box.left, y=box.top, width=LANE, height=box.bottom - box.top, class_="lane"),
        svg.text(box.left + LANE / 2, box.bottom + 18, "unknown", "tick", "middle"),
        svg.line(at, box.top, at, box.bottom, "axis"),
    )


def _staircase(steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    path = [steps[0]]
    for x, y in steps[1:]:
        path += [(x, path[-1][1]), (x, y)]
    return path


def _mark(run: Run, metric: Metric, spot: Spot, at: tuple[float, float], x: svg.Scale, y: svg.Scale) -> Markup:
    px, py = at
    behind = []
    gain, quality = spot.trial.gain, spot.trial.quality
    if gain:
        behind.append(svg.line(px, y(gain.low), px, y(gain.high), "whisker"))
    if metric.name == "quality" and quality and quality.low is not None and quality.high is not None:
        behind.append(svg.line(x(quality.low), py, x(quality.high), py, "whisker"))
    return marks.point(run, spot.number, spot.trial, px, py, *behind)


def _labels(run: Run, found: list[Spot], places: dict[int, tuple[float, float]], box: svg.Box) -> Markup:
    labels = svg.Labels(box, places.values())
    order = sorted(found, key=lambda s: list(marks.Standing).index(marks.standing(run, s.trial)))
    parts = []
    for spot in order:
        kind = marks.standing(run, spot.trial)
        name = {marks.Standing.BEST: f"{spot.number} best", marks.Standing.BASELINE: "baseline"}.get(
            kind, str(spot.number)
        )
        parts.append(
            labels.place(*places[spot.number], name, "label strong" if kind is marks.Standing.BEST else "label")
        )
    return svg.group(*parts, class_="labels")
