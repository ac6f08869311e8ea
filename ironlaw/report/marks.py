"""How a trial looks in every chart: a shape for its standing, its number, its tooltip, its link to the table.

Why shapes: standing must not be told by colour alone. Why links: a point is then reachable by keyboard
and leads to its row without any script. Anchors are numbers, since ids come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from markupsafe import Markup

from ironlaw.records import Outcome, Run, Trial
from ironlaw.report import svg, units, words


class Standing(StrEnum):
    """What became of a trial, in the order of a legend."""

    BEST = "best"
    FRONTIER = "frontier"
    IMPROVED = "improved"
    BASELINE = "baseline"
    UNSETTLED = "unsettled"
    REJECTED = "rejected"


MEANING = {
    Standing.BEST: "best point",
    Standing.FRONTIER: "on the frontier",
    Standing.IMPROVED: "improved",
    Standing.BASELINE: "baseline",
    Standing.UNSETTLED: "unsettled",
    Standing.REJECTED: "rejected",
}


def standing(run: Run, trial: Trial) -> Standing:
    if trial.id == run.best:
        return Standing.BEST
    if trial.id == run.baseline.id:
        return Standing.BASELINE
    if trial.id in run.frontier:
        return Standing.FRONTIER
    if trial.outcome is Outcome.UNSETTLED:
        return Standing.UNSETTLED
    return Standing.IMPROVED if trial.outcome is Outcome.IMPROVED else Standing.REJECTED


def numbered(run: Run) -> list[tuple[int, Trial]]:
    """Trials with the number that names them on the page; the baseline is 0."""
    return list(enumerate((run.baseline, *run.trials)))


def gain_of(run: Run, trial: Trial) -> float | None:
    """The paired ratio to the baseline, 1 for the baseline itself."""
    if trial.id == run.baseline.id:
        return 1.0
    return trial.gain.median if trial.gain else None


def shape(kind: Standing, x: float, y: float) -> Markup:
    """The shape alone, about 10 units wide."""
    where = {"class_": f"mark {kind}"}
    if kind is Standing.BEST:
        points = "0,-9 2.3,-3 8.6,-2.8 3.6,1.1 5.3,7.3 0,3.8 -5.3,7.3 -3.6,1.1 -8.6,-2.8 -2.3,-3"
        return svg.element("polygon", points=points, transform=f"translate({x:.1f} {y:.1f})", **where)
    if kind is Standing.BASELINE:
        return svg.element("rect", x=x - 4.5, y=y - 4.5, width=9.0, height=9.0, **where)
    if kind is Standing.UNSETTLED:
        return svg.element("path", d=f"M{x:.1f} {y - 6:.1f} l6 6 l-6 6 l-6 -6 z", **where)
    if kind is Standing.REJECTED:
        d = f"M{x - 4:.1f} {y - 4:.1f} l8 8 m0 -8 l-8 8"
        return svg.element("path", d=d, **where)
    return svg.element("circle", cx=float(x), cy=float(y), r=5.0, **where)


def tip(run: Run, number: int, trial: Trial) -> str:
    """Lines of a tooltip."""
    lines = [f"{number}  {trial.label}", words.OUTCOME[trial.outcome] if number else "baseline"]
    if trial.gain:
        lines.append(f"gain {units.gain(trial.gain)}")
    if trial.measured:
        lines.append(f"p50 {units.seconds(trial.measured.latency_s.p50)}")
    if trial.quality:
        lines.append(f"{trial.quality.metric} {units.quality(trial.quality, relative=run.goal.max_drop.relative)}")
    if trial.measured:
        size, memory = trial.measured.size_bytes, trial.measured.peak_memory_bytes
        lines.append(f"{units.size(size)} on disk, {units.size(memory)} peak memory")
    return "\n".join(lines)


def point(run: Run, number: int, trial: Trial, x: float, y: float, *behind: Markup) -> Markup:
    """A trial in a chart: a link to its row, with intervals behind the shape."""
    kind = standing(run, trial)
    lines = tip(run, number, trial)
    return svg.element(
        "a",
        *behind,
        svg.element("circle", cx=float(x), cy=float(y), r=13.0, class_="hit"),
        shape(kind, x, y),
        href=f"#trial-{number}",
        class_=f"point {kind}",
        data_trial=str(number),
        data_tip=lines,
        aria_label=lines.replace("\n", "; "),
    )


def legend(kinds: Iterable[Standing]) -> list[tuple[Markup, str]]:
    """Each standing that occurs: its shape and its meaning."""
    present = set(kinds)
    return [(svg.group(shape(kind, 10, 10)), MEANING[kind]) for kind in Standing if kind in present]
