"""The roofline: operators under the measured ceilings of this machine.

Intensity is an interval: compulsory traffic at its right end, per-operator traffic at its left; the
dot lies at the geometric middle and is not a claim. An operator that was not timed, or not counted,
is listed and not drawn, since its place would be a guess. Law: Williams, Waterman, Patterson,
"Roofline" (CACM 2009), attainable = min(peak, intensity x bandwidth).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from ironlaw.records import Ceiling, Diagnosis, Machine, Op
from ironlaw.report import svg, units

DRAWN = 48
DECADES = 6.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """An operator that can be placed; ``high`` is inf where no compulsory traffic is known."""

    number: int
    op: Op
    low: float
    high: float
    rate: float
    time_s: float

    @property
    def middle(self) -> float:
        return self.low if math.isinf(self.high) else math.sqrt(self.low * self.high)


def by_time(diagnosis: Diagnosis) -> list[tuple[int, Op]]:
    """Operators with numbers from 1, the slowest first; those that were not timed come last."""
    ops = sorted(diagnosis.ledger.ops, key=lambda op: -1.0 if op.time_s is None else op.time_s, reverse=True)
    return list(enumerate(ops, start=1))


def intensity(op: Op) -> tuple[float, float] | None:
    """FLOPs a byte, from per-operator to compulsory traffic; None when it cannot be said."""
    if not op.flops or op.bytes_high <= 0:
        return None
    return op.flops / op.bytes_high, op.flops / op.bytes_low if op.bytes_low > 0 else math.inf


def dots(diagnosis: Diagnosis) -> list[Dot]:
    """The slowest operators that were counted and timed."""
    found = []
    for number, op in by_time(diagnosis):
        span = intensity(op)
        if span is not None and op.flops and op.time_s:
            found.append(
                Dot(number=number, op=op, low=span[0], high=span[1], rate=op.flops / op.time_s, time_s=op.time_s)
            )
    return found[:DRAWN]


def ceilings(machine: Machine, threads: int) -> tuple[list[Ceiling], list[Ceiling]]:
    """Arithmetic and bandwidth ceilings at the nearest measured thread count, the highest first."""
    dtypes = sorted({c.dtype for c in machine.ceilings if c.name == "matmul"}, key=str)
    peaks = [machine.ceiling("matmul", dtype=d, threads=threads, refused=True) for d in dtypes]
    widths = [machine.ceiling(name, threads=threads, refused=True) for name in ("cache", "dram")]
    return (
        sorted((c for c in peaks if c and c.value > 0), key=lambda c: -c.value),
        [c for c in widths if c and c.value > 0],
    )


def empty(machine: Machine, diagnosis: Diagnosis) -> str:
    """Why there is nothing to draw; "" when there is."""
    peaks, widths = ceilings(machine, diagnosis.threads)
    if not peaks or not widths:
        return "No roofline: the ceilings of this machine were not measured."
    return ""


def draw(machine: Machine, diagnosis: Diagnosis, size: svg.Size) -> Markup:
    """The chart at one size. Call it only when ``empty`` says nothing."""
    peaks, widths = ceilings(machine, diagnosis.threads)
    box = svg.Box.inside(size, left=66 if not size.narrow else 58)
    found = dots(diagnosis)
    top = max(p.value for p in peaks)
    lowest = min([top / 100, *(max(d.rate, top / 10**DECADES) for d in found)])
    inside = [p for p in peaks if p.value >= lowest]
    ridges = [p.value / w.value for p in inside for w in widths]
    ends = [v for d in found for v in (d.low, d.high) if math.isfinite(v)]
    x = svg.logarithmic([*ends, *ridges, 1.0], box.left, box.right, pad=2.0)
    y = svg.logarithmic([lowest, top], box.bottom, box.top, pad=1.7)
    parts = [
        svg.axes(
            box,
            svg.Axis(scale=x, title="intensity, FLOP/B", label=units.tick, count=4 if size.narrow else 8),
            svg.Axis(scale=y, title="FLOP/s", label=lambda v: units.scaled(v, "", tidy=True), count=7),
        ),
        _roofs(inside, widths, x, y, box),
    ]
    longest = max((d.time_s for d in found), default=1.0)
    parts += [_dot(d, diagnosis, x, y, longest) for d in reversed(found)]
    labels = svg.Labels(box, [(x(d.middle), y(d.rate)) for d in found[:12]])
    parts.append(svg.group(*(labels.place(x(d.middle), y(d.rate), str(d.number)) for d in found[:5]), class_="labels"))
    parts.append(_names(inside, [p for p in peaks if p.value < lowest], y, box))
    return svg.chart(size, f"Roofline of {diagnosis.target} at {diagnosis.threads} threads", *parts)


def _roofs(peaks: list[Ceiling], widths: list[Ceiling], x: svg.Scale, y: svg.Scale, box: svg.Box) -> Markup:
    parts = []
    fastest = max(w.value for w in widths)
    for peak in peaks:
        at = y(peak.value)
        parts.append(svg.line(x(peak.value / fastest), at, box.right, at, _class(peak)))
    parts += [_slope(width, peaks[0].value, x, y, box) for width in widths]
    return svg.group(*parts, class_="roofs")


def _names(peaks: list[Ceiling], below: list[Ceiling], y: svg.Scale, box: svg.Box) -> Markup:
    """Names of the arithmetic ceilings, above all dots and apart from each other."""
    parts = []
    taken = -math.inf
    for peak in peaks:
        taken = max(y(peak.value) - 5, taken + 13)
        parts.append(svg.text(box.right - 4, taken, _name(peak), "note", "end"))
    if below:
        names = ", ".join(_name(p) for p in below)
        parts.append(svg.text(box.right - 4, box.bottom - 8, f"below: {names}", "note", "end"))
    return svg.group(*parts)


def _name(peak: Ceiling) -> str:
    settled = "" if peak.valid else ", not settled"
    return f"{peak.dtype or 'peak'} {units.scaled(peak.value, 'FLOP/s')}{settled}"


def _slope(width: Ceiling, peak: float, x: svg.Scale, y: svg.Scale, box: svg.Box) -> Markup:
    low = max(x.low, y.low / width.value)
    high = min(x.high, peak / width.value)
    if high <= low:
        return Markup("")
    label = f"{width.name} {units.scaled(width.value, 'B/s')}{'' if width.valid else ', not settled'}"
    angle = math.degrees(math.atan2(y(high * width.value) - y(low * width.value), x(high) - x(low)))
    px, py = x(low), y(low * width.value)
    radians = math.radians(angle)
    px, py = px + 10 * math.cos(radians), py + 10 * math.sin(radians)
    turn = f"rotate({angle:.1f} {px:.1f} {py:.1f})"
    return svg.group(
        svg.line(x(low), y(low * width.value), x(high), y(high * width.value), _class(width)),
        svg.element("text", label, x=px, y=py - 5, class_="note", transform=turn),
    )


def _class(ceiling: Ceiling) -> str:
    kind = "roof cache" if ceiling.name == "cache" else "roof"
    return kind if ceiling.valid else f"{kind} unsettled"


def _dot(dot: Dot, diagnosis: Diagnosis, x: svg.Scale, y: svg.Scale, longest: float) -> Markup:
    radius = 2.5 + 9.5 * math.sqrt(dot.time_s / longest)
    px, py = x(dot.middle), y(dot.rate)
    share = units.percent(dot.time_s / diagnosis.total_s) if diagnosis.total_s else units.UNKNOWN
    lines = "\n".join(
        (
            f"{dot.number}  {dot.op.name} {dot.op.shape}".rstrip(),
            f"{units.seconds(dot.time_s)}, {share} of a call, {dot.op.calls} calls",
            f"{units.scaled(dot.rate, 'FLOP/s')} reached",
            f"intensity {units.number(dot.low)} to {_end(dot.high)} FLOP/B",
        )
    )
    right = x.end if math.isinf(dot.high) else x(dot.high)
    return svg.element(
        "g",
        svg.line(x(dot.low), py, right, py, "whisker"),
        svg.element("circle", cx=px, cy=py, r=radius, class_="op"),
        class_="operator",
        tabindex="0",
        role="img",
        data_tip=lines,
        aria_label=lines.replace("\n", "; "),
    )


def _end(value: float) -> str:
    return "unknown" if math.isinf(value) else units.number(value)


def span(found: tuple[float, float] | None) -> str:
    """An intensity interval as text."""
    return units.UNKNOWN if found is None else f"{units.number(found[0])} to {_end(found[1])}"
