"""A machine for the eye: a table for the terminal and a roofline to look at.

The roofline (Williams, Waterman, Patterson, "Roofline: an insightful visual performance model",
CACM 52(4), 2009) draws attainable = min(peak, intensity x bandwidth), one line a dtype and one a
bandwidth level, with the ridge points where they meet. A ceiling that was refused is dashed and says so.
The SVG carries its own styles and both colour schemes, so that it can be opened, embedded or mailed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ironlaw.machine.words import scaled, text
from ironlaw.records import Ceiling, Machine, Op

__all__ = ["roofs", "svg", "text"]

WIDTH, HEIGHT = 880, 540
LEFT, RIGHT, TOP, BOTTOM = 76, 168, 58, 60
LEVELS = ("cache", "dram")
STYLE = """
.ironlaw-roofline { --ground: #ffffff; --grid: #d8dee4; --roof: #0550ae; --slope: #8250df; --dot: #bc4c00;
  color: #1f2328; font: 13px system-ui, sans-serif; max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { .ironlaw-roofline { --ground: #0d1117; --grid: #30363d; --roof: #79c0ff;
  --slope: #d2a8ff; --dot: #ffa657; color: #e6edf3; } }
.ironlaw-roofline .ground { fill: var(--ground); }
.ironlaw-roofline text { fill: currentColor; }
.ironlaw-roofline .title { font-size: 15px; font-weight: 600; }
.ironlaw-roofline .small { font-size: 11px; }
.ironlaw-roofline .halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }
.ironlaw-roofline .grid { stroke: var(--grid); stroke-width: 1; }
.ironlaw-roofline .axis { stroke: currentColor; stroke-width: 1; }
.ironlaw-roofline .roof { stroke: var(--roof); stroke-width: 2; fill: none; }
.ironlaw-roofline .slope { stroke: var(--slope); stroke-width: 2; fill: none; }
.ironlaw-roofline .refused { stroke-dasharray: 6 5; }
.ironlaw-roofline .ridge { fill: var(--ground); stroke: currentColor; stroke-width: 1.5; }
.ironlaw-roofline .op { fill: var(--dot); fill-opacity: 0.85; }
.ironlaw-roofline .span { stroke: var(--dot); stroke-width: 1.5; stroke-opacity: 0.6; }
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """A logarithmic axis from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + (self.end - self.start) * part

    def decades(self) -> list[float]:
        return [10.0**n for n in range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)]


def svg(machine: Machine, ops: Sequence[Op] = (), *, threads: int | None = None) -> str:
    """A self-contained SVG; operators that were counted and timed become dots over their intensity's interval.

    ``threads`` defaults to the most that were measured. Without an arithmetic and a bandwidth ceiling
    the picture says so instead.
    """
    threads = threads or max((c.threads for c in machine.ceilings), default=1)
    peaks, slopes = roofs(machine, threads)
    title = f"Roofline of {machine.environment.identity.cpu}, {threads} thread{'s' if threads > 1 else ''}"
    if not peaks or not slopes:
        body = [_text(WIDTH / 2, HEIGHT / 2, "No roofline: the ceilings were not measured.", anchor="middle")]
    else:
        placed = [op for op in ops if op.flops and op.time_s and op.bytes_high > 0]
        x, y = _scales(peaks, slopes, placed)
        ridges = [_ridge(peak, slope, x, y) for peak in peaks for slope in slopes]
        labels = _peak_labels(peaks, y)
        body = [*_axes(x, y), *(_slope(s, peaks, x, y) for s in slopes), *(_roof(p, slopes, x, y) for p in peaks)]
        body += [*ridges, *labels, *(_dot(op, x, y) for op in placed)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ironlaw-roofline" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">'
    )
    legend = "circles: ridge points in FLOP/B, above which arithmetic limits; dashed: did not settle"
    ground = f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>'
    return "\n".join(
        [
            head,
            f"<style>{STYLE}</style>",
            ground,
            _text(LEFT, 24, title, "title"),
            _text(LEFT, 42, legend, "small"),
            *body,
            "</svg>",
        ]
    )


def roofs(machine: Machine, threads: int) -> tuple[list[Ceiling], list[Ceiling]]:
    """Arithmetic ceilings by dtype, the highest first, and bandwidths, the fastest first."""
    dtypes = dict.fromkeys(c.dtype for c in machine.ceilings if c.name == "matmul")
    peaks = [machine.ceiling("matmul", dtype=dtype, threads=threads, refused=True) for dtype in dtypes]
    slopes = [machine.ceiling(level, threads=threads, refused=True) for level in LEVELS]
    return (
        sorted((c for c in peaks if c and c.value > 0), key=lambda c: -c.value),
        sorted((c for c in slopes if c and c.value > 0), key=lambda c: -c.value),
    )


def _scales(peaks: Sequence[Ceiling], slopes: Sequence[Ceiling], ops: Sequence[Op]) -> tuple[Scale, Scale]:
    ridges = [p.value / s.value for p in peaks for s in slopes]
    spans = [v for op in ops for v in _intensity(op)]
    rates = [(op.flops or 0.0) / (op.time_s or 1.0) for op in ops]
    x = Scale(
        low=min([min(ridges) / 4.0, 0.25, *(v / 1.5 for v in spans)]),
        high=max([max(ridges) * 12.0, *(v * 1.5 for v in spans)]),
        start=LEFT,
        end=WIDTH - RIGHT,
    )
    tops = [p.value for p in peaks]
    floor = min([*tops, *(r for r in rates if r > max(tops) / 1e5)]) / 4.0
    return x, Scale(low=floor, high=max([*tops, *rates]) * 2.0, start=HEIGHT - BOTTOM, end=TOP)


def _intensity(op: Op) -> tuple[float, float]:
    """FLOPs a byte, from the traffic of every operand to the compulsory traffic."""
    flops = op.flops or 0.0
    return flops / op.bytes_high, flops / op.bytes_low if op.bytes_low > 0 else flops / op.bytes_high


def _axes(x: Scale, y: Scale) -> list[str]:
    parts = []
    for value in x.decades():
        parts.append(_line(x(value), TOP, x(value), HEIGHT - BOTTOM, "grid"))
        parts.append(_text(x(value), HEIGHT - BOTTOM + 18, f"{value:g}", anchor="middle"))
    for value in y.decades():
        parts.append(_line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid"))
        parts.append(_text(LEFT - 8, y(value) + 4, scaled(value, ""), anchor="end"))
    parts.append(_line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "axis"))
    parts.append(_line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "axis"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "arithmetic intensity, FLOP/B", anchor="middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'transform="rotate(-90 18 {middle:.1f})"'
    parts.append(f'<text x="18" y="{middle:.1f}" text-anchor="middle" {turned}>FLOP/s</text>')
    return parts


def _roof(peak: Ceiling, slopes: Sequence[Ceiling], x: Scale, y: Scale) -> str:
    start = max(peak.value / slopes[0].value, x.low)
    return _line(x(start), y(peak.value), WIDTH - RIGHT, y(peak.value), _class("roof", peak))


def _slope(slope: Ceiling, peaks: Sequence[Ceiling], x: Scale, y: Scale) -> str:
    """The diagonal up to the highest roof, its name along it where the ridge points leave most room."""
    low, high = max(x.low, y.low / slope.value), peaks[0].value / slope.value
    stops = sorted({low, high, *(p.value / slope.value for p in peaks if p.value / slope.value > low)})
    before, after = max(itertools.pairwise(stops), key=lambda pair: pair[1] / pair[0])
    middle = math.sqrt(before * after)
    x1, y1, x2, y2 = x(low), y(low * slope.value), x(high), y(high * slope.value)
    turn = math.degrees(math.atan2(y2 - y1, x2 - x1))
    place = f'transform="translate({x(middle):.1f} {y(middle * slope.value):.1f}) rotate({turn:.1f})"'
    label = escape(f"{slope.name} {scaled(slope.value, 'B/s')}{_refused(slope)}")
    text = f'<text class="halo" y="{-7 if slope.name == LEVELS[0] else 17}" text-anchor="middle" {place}>{label}</text>'
    return _line(x1, y1, x2, y2, _class("slope", slope)) + text


def _ridge(peak: Ceiling, slope: Ceiling, x: Scale, y: Scale) -> str:
    """Where a roof meets a slope: above this intensity arithmetic limits, below it memory."""
    at = peak.value / slope.value
    px, py = x(at), y(peak.value)
    left = slope.name == LEVELS[0]
    label = _text(
        px - 8 if left else px + 8, py + (-7 if left else 15), f"{at:.3g}", "small halo", "end" if left else "start"
    )
    hint = f"<title>{escape(f'ridge of {peak.dtype} over {slope.name}: {at:.3g} FLOP/B')}</title>"
    return f'<g><circle class="ridge" cx="{px:.1f}" cy="{py:.1f}" r="4">{hint}</circle>{label}</g>'


def _peak_labels(peaks: Sequence[Ceiling], y: Scale) -> list[str]:
    """Names at the right of the roofs, moved down where two would overlap."""
    parts, taken = [], -math.inf
    for peak in peaks:
        at = max(y(peak.value) + 4, taken + 15)
        taken = at
        label = f"{peak.dtype} {scaled(peak.value, 'FLOP/s')}{_refused(peak)}"
        parts.append(_text(WIDTH - RIGHT + 8, at, label))
    return parts


def _dot(op: Op, x: Scale, y: Scale) -> str:
    low, high = _intensity(op)
    rate = max((op.flops or 0.0) / (op.time_s or 1.0), y.low)
    middle = math.sqrt(low * high)
    says = f"{op.name}: {scaled(rate, 'FLOP/s')} at {low:.3g} to {high:.3g} FLOP/B, {scaled(op.time_s or 0.0, 's')}"
    span = _line(x(low), y(rate), x(high), y(rate), "span")
    circle = f'<circle class="op" cx="{x(middle):.1f}" cy="{y(rate):.1f}" r="5"><title>{escape(says)}</title></circle>'
    return f"<g>{span}{circle}</g>"


def _class(name: str, ceiling: Ceiling) -> str:
    return name if ceiling.valid else f"{name} refused"


def _refused(ceiling: Ceiling) -> str:
    return "" if ceiling.valid else ", unsettled"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
