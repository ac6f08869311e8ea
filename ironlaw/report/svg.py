"""Elements, scales and axes for charts that are inline SVG and need no script.

Why our own: the page must work offline, weigh little, be printed and be read by a screen reader. A
chart is drawn twice, for a wide and for a narrow page, since text that is scaled down cannot be read.
Colours are classes that the style sheet fills, so that dark mode and print need no second drawing.
It refuses animation and zoom: every number drawn is also in a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from markupsafe import Markup, escape

Child = str | Markup
CHARACTER, BOLD = 6.6, 7.9
"""Width that a character of a chart label may take, in user units."""


def element(name: str, *children: Child, **attributes: str | float | None) -> Markup:
    """One element. ``class_`` is ``class``, ``stroke_width`` is ``stroke-width``; None is left out; all is escaped."""
    parts = []
    for key, value in attributes.items():
        if value is None:
            continue
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        parts.append(Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), text))
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup("").join(parts), inside)


def group(*children: Child, class_: str | None = None) -> Markup:
    return element("g", *children, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def text(x: float, y: float, content: str, class_: str = "label", anchor: str = "start") -> Markup:
    return element("text", content, x=float(x), y=float(y), class_=class_, text_anchor=anchor)


def path(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return element("path", d=f"M{steps}", class_=class_)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The page that a chart is drawn for; user units are CSS pixels at full width."""

    name: str
    width: float
    height: float

    @property
    def narrow(self) -> bool:
        return self.name == "narrow"


class Drawing(Protocol):
    """Draws one chart for a size."""

    def __call__(self, size: Size) -> Markup:
        """The ``svg`` element."""


WIDE = Size(name="wide", width=880, height=420)
NARROW = Size(name="narrow", width=350, height=340)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """From values to user units; values outside are drawn at the edge."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside, at most about ``count``: decades, then 1-2-5, then even steps on a log scale."""
        if not self.log:
            return _even(self.low, self.high, count)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for steps in ((1, 2, 5), (1, 3), (1,)):
            found = [s * 10.0**e for e in range(first, last + 1) for s in steps]
            found = [v for v in found if self.low * 0.999 <= v <= self.high * 1.001]
            if 3 <= len(found) <= count + 1:
                return found
        if len(found) > count:
            return found[:: math.ceil(len(found) / count)]
        return _even(self.low, self.high, count)


def _even(low: float, high: float, count: int) -> list[float]:
    """Multiples of the finest 1-2-5 step that gives at most ``count + 1`` of them."""
    unit = 10.0 ** math.floor(math.log10((high - low) / max(count, 1)))
    ticks: list[float] = []
    for step in (unit, 2 * unit, 5 * unit, 10 * unit):
        ticks = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        if len(ticks) <= count + 1:
            break
    return ticks


def linear(values: Iterable[float], start: float, end: float, *, pad: float = 0.06) -> Scale:
    """A scale around values, never of zero width."""
    found = list(values) or [0.0]
    low, high = min(found), max(found)
    width = (high - low) or abs(high) or 1.0
    return Scale(low=low - pad * width, high=high + pad * width, start=start, end=end)


def logarithmic(values: Iterable[float], start: float, end: float, *, pad: float = 1.12) -> Scale:
    """A log scale around the positive ones of the values, at least a factor of two wide."""
    found = [v for v in values if v > 0 and math.isfinite(v)] or [1.0]
    low, high = min(found) / pad, max(found) * pad
    if high / low < 2.0:
        widen = math.sqrt(2.0 * low / high)
        low, high = low / widen, high * widen
    return Scale(low=low, high=high, start=start, end=end, log=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """The plot area inside a chart."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def inside(cls, size: Size, *, left: float = 56, right: float = 16, top: float = 34, bottom: float = 50) -> Box:
        return cls(left=left, top=top, right=size.width - right, bottom=size.height - bottom)


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A scale with its title and how its ticks read."""

    scale: Scale
    title: str
    label: Callable[[float], str]
    count: int = 5


def axes(box: Box, x: Axis, y: Axis) -> Markup:
    """Grid, ticks and titles. The vertical title lies flat above the axis, where it is read first."""
    parts = []
    for value in y.scale.ticks(y.count):
        at = y.scale(value)
        parts.append(line(box.left, at, box.right, at, "grid"))
        parts.append(text(box.left - 8, at + 4, y.label(value), "tick", "end"))
    for value in x.scale.ticks(x.count):
        at = x.scale(value)
        parts.append(line(at, box.top, at, box.bottom, "grid"))
        parts.append(text(at, box.bottom + 18, x.label(value), "tick", "middle"))
    parts.append(line(box.left, box.bottom, box.right, box.bottom, "axis"))
    parts.append(text(4, box.top - 18, y.title, "title"))
    parts.append(text(box.right, box.bottom + 40, x.title, "title", "end"))
    return group(*parts, class_="axes")


def chart(size: Size, label: str, *children: Child) -> Markup:
    """The ``svg`` element of one drawing; its points stay reachable, so it is a group and not an image."""
    return element(
        "svg",
        element("title", label),
        *children,
        viewBox=f"0 0 {size.width:g} {size.height:g}",
        class_=f"chart {size.name}",
        role="group",
        aria_label=label,
    )


class Labels:
    """Places short labels beside points so that none covers another or a point; one that finds no place is left out."""

    def __init__(self, box: Box, points: Iterable[tuple[float, float]]) -> None:
        self._box = box
        self._taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]

    def place(self, x: float, y: float, content: str, class_: str = "label") -> Markup:
        width = len(content) * CHARACTER
        sides = ((9.0, 4.0), (-9.0 - width, 4.0), (-width / 2, -10.0), (-width / 2, 19.0), (8.0, -9.0), (8.0, 17.0))
        for dx, dy in sides:
            area = (x + dx, y + dy - 11, x + dx + width, y + dy + 3)
            if self._free(area):
                self._taken.append(area)
                return text(x + dx, y + dy, content, class_)
        return Markup("")

    def _free(self, area: tuple[float, float, float, float]) -> bool:
        left, top, right, bottom = area
        if (
            left < self._box.left
            or right > self._box.right + 12
            or top < self._box.top - 8
            or bottom > self._box.bottom
        ):
            return False
        return all(right < x1 or left > x2 or bottom < y1 or top > y2 for x1, y1, x2, y2 in self._taken)
