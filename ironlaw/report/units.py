"""Numbers as text: the only place where SI is scaled and rounded.

Three significant digits, since no interval here is narrower than that; a thin space is never used, so
that text can be searched; a minus is a minus sign. ``None`` is the word *unknown*, never 0 or a dash.
"""

from __future__ import annotations

import math

from ironlaw.records import Diagnosis, Gain, Interval, Quality

UNKNOWN = "unknown"
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))

_CONTROLS = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)


def plain(text: str) -> str:
    """Text from elsewhere without characters that would steer a terminal or turn our own words around."""
    return text.translate(_CONTROLS).encode("utf-8", "replace").decode()


def number(value: float, digits: int = 3) -> str:
    """``value`` at that many significant digits, without exponent between 1e-4 and 1e6."""
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if not -4 <= size < 6:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    rounded = round(value, digits - 1 - size)
    size = math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, digits - 1 - size)}f}".replace("-", "−")


def scaled(value: float | None, unit: str, *, tidy: bool = False) -> str:
    """With an SI prefix, powers of 1000: ``4.65 MB``, ``98.2 GFLOP/s``; ``tidy`` drops trailing zeros for axes."""
    if value is None:
        return UNKNOWN
    show = tick if tidy else number
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor * 0.9995:
            return f"{show(value / factor)} {prefix}{unit}"
    return f"{show(value)} {unit}".rstrip()


def size(value_bytes: float | None) -> str:
    return scaled(value_bytes, "B")


def joules(value_j: float | None) -> str:
    """``12.5 J``, ``10.0 µJ``, ``3.00 pJ``."""
    if not value_j or abs(value_j) >= 999.5:
        return scaled(value_j, "J")
    factor, prefix = next(((f, p) for f, p in _SMALL if abs(value_j) >= f * 0.9995), _SMALL[-1])
    return f"{number(value_j / factor)} {prefix}J"


def seconds(value_s: float | None) -> str:
    """``845 µs``, ``12.3 ms``, ``2.41 s``, ``4 min 38 s``."""
    if value_s is None:
        return UNKNOWN
    amount = abs(value_s)
    if amount >= 119.5:
        minutes, rest = divmod(round(value_s), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if amount >= factor * 0.9995:
            return f"{number(value_s / factor)} {unit}"
    return "0 s" if value_s == 0 else f"{number(value_s / 1e-9)} ns"


def seconds_range(interval: Interval | None) -> str:
    """``3.1 ms to 3.4 ms``, one number when both ends look alike."""
    if interval is None:
        return UNKNOWN
    low, high = seconds(interval.low), seconds(interval.high)
    return low if low == high else f"{low} to {high}"


def ratio(value: float | None) -> str:
    """``2.31×``."""
    return UNKNOWN if value is None else f"{number(value)}×"


def ratio_range(low: float, high: float) -> str:
    """``2.24–2.40×``."""
    return f"{number(low)}–{number(high)}×"


def gain(value: Gain | None) -> str:
    """``2.31× (2.24–2.40×)``."""
    return UNKNOWN if value is None else f"{ratio(value.median)} ({ratio_range(value.low, value.high)})"


def percent(share: float) -> str:
    """A share of 1 in whole per cent, one decimal below 10."""
    text = f"{share * 100:.1f}" if 0 < abs(share) < 0.0995 else f"{share * 100:.0f}"
    return f"{text} %".replace("-", "−")


def tick(value: float) -> str:
    """A round number on an axis, without trailing zeros."""
    return f"{value:,.12g}".replace("-", "−")


def drop(value: float, *, relative: bool, metric_value: float) -> str:
    """A quality drop: ``%`` when relative, points for metrics on a scale of 1, else in the metric's own unit."""
    if relative:
        return f"{signed(value * 100)} %"
    return f"{signed(value * 100)} pt" if abs(metric_value) <= 1.0 else signed(value)


def signed(value: float) -> str:
    """At most two decimals, no sign on zero."""
    text = f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < 10 else number(value)
    return "0" if text in ("-0", "0") else text.replace("-", "−")


def quality(value: Quality | None, *, relative: bool) -> str:
    """``0.980, drop 0.2 pt (−0.2 to 0.6 pt)``."""
    if value is None:
        return "not evaluated"
    return f"{metric(value.value)}, {quality_drop(value, relative=relative)}"


def quality_drop(value: Quality, *, relative: bool) -> str:
    if value.drop is None:
        return f"drop {UNKNOWN}"
    point = drop(value.drop, relative=relative, metric_value=value.baseline)
    if value.low is None or value.high is None:
        return f"drop {point}, interval {UNKNOWN}"
    return f"drop {point} ({drop_range(value.low, value.high, relative=relative, metric_value=value.baseline)})"


def drop_range(low: float, high: float, *, relative: bool, metric_value: float) -> str:
    """``−0.2 to 0.6 pt``."""
    start, end = (drop(v, relative=relative, metric_value=metric_value) for v in (low, high))
    number_only, _, unit = start.partition(" ")
    return f"{number_only} to {end}" if unit and end.endswith(unit) else f"{start} to {end}"


def metric(value: float | None) -> str:
    """A quality value at four significant digits, since drops are small."""
    return UNKNOWN if value is None else number(value, 4)


def call_or_step(diagnosis: Diagnosis) -> str:
    """What the time of a diagnosis is of: a call of a model, or a step of a training job."""
    return "call" if diagnosis.step is None else "step"
