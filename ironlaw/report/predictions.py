"""Predicted against measured: every gain was predicted before it was measured, and both are shown.

The identity line is a right prediction; a point whose horizontal interval reaches it was covered. The
score counts all trials that have both numbers, the rejected ones too, else the tool would mark itself.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from markupsafe import Markup

from ironlaw.records import Gain, Prediction, Run, Trial
from ironlaw.report import marks, svg, units


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A trial that was predicted and measured."""

    number: int
    trial: Trial
    predicted: Prediction
    gain: Gain

    @property
    def covered(self) -> bool:
        """Whether the 90 % interval of the prediction holds the measured median."""
        return self.predicted.speedup.low <= self.gain.median <= self.predicted.speedup.high

    @property
    def error(self) -> float:
        """|ln(predicted / measured)|."""
        return abs(math.log(self.predicted.speedup.value / self.gain.median))


def pairs(run: Run) -> list[Pair]:
    return [
        Pair(number=number, trial=trial, predicted=trial.predicted, gain=trial.gain)
        for number, trial in marks.numbered(run)
        if trial.predicted and trial.gain and trial.predicted.speedup.low > 0
    ]


def score(run: Run) -> str:
    """How well this run was predicted, in one sentence."""
    found = pairs(run)
    if not found:
        return "No trial has both a prediction and a measured gain."
    inside = sum(p.covered for p in found)
    middle = statistics.median(p.error for p in found)
    return (
        f"{inside} of {len(found)} measured gains lie inside their 90 % prediction; "
        f"median error {units.percent(math.expm1(middle))} (|ln| {middle:.2f})."
    )


def _times(value: float) -> str:
    return f"{units.tick(value)}×"


def draw(run: Run, size: svg.Size) -> Markup:
    """The chart at one size; both axes have the same scale."""
    found = pairs(run)
    box = svg.Box.inside(size)
    values = [v for p in found for v in (p.predicted.speedup.low, p.predicted.speedup.high, p.gain.low, p.gain.high)]
    x = svg.logarithmic([*values, 1.0], box.left, box.right)
    y = svg.logarithmic([*values, 1.0], box.bottom, box.top)
    parts = [
        svg.axes(
            box,
            svg.Axis(scale=x, title="predicted gain", label=_times, count=4 if size.narrow else 7),
            svg.Axis(scale=y, title="measured gain", label=_times, count=6),
        ),
        svg.line(box.left, box.bottom, box.right, box.top, "identity"),
    ]
    places = {p.number: (x(p.predicted.speedup.value), y(p.gain.median)) for p in found}
    for p in found:
        px, py = places[p.number]
        across = svg.line(x(p.predicted.speedup.low), py, x(p.predicted.speedup.high), py, "whisker")
        up = svg.line(px, y(p.gain.low), px, y(p.gain.high), "whisker")
        parts.append(marks.point(run, p.number, p.trial, px, py, across, up))
    labels = svg.Labels(box, places.values())
    parts.append(svg.group(*(labels.place(*places[p.number], str(p.number)) for p in found), class_="labels"))
    return svg.chart(size, "Predicted against measured gain", *parts)
