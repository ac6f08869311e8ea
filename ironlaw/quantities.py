"""Quantities as people write them, to SI: ``1pt``, ``5ms``, ``10min``, ``2MB``, ``200/s``."""

from __future__ import annotations

import re

from ironlaw.records import Budget, UserError

_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9]*)\s*$")
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def seconds(text: str | float, what: str) -> float:
    """A duration in seconds: ``5ms``, ``10min``, ``2`` (seconds). Raises UserError."""
    return _positive(text, _SECONDS, what, "a duration such as 5ms, 30s or 10min")


def rate(text: str | float, what: str) -> float:
    """Requests a second: ``200/s``, ``3000/min``, ``200``. Raises UserError."""
    return _positive(text, {"": 1.0, "/s": 1.0, "/min": 1 / 60.0}, what, "a rate such as 200/s or 3000/min")


def size_bytes(text: str | int, what: str) -> int:
    """A size in bytes: ``200kB``, ``2MB``, ``1GiB``. Raises UserError."""
    return int(_positive(text, {k: float(v) for k, v in _BYTES.items()}, what, "a size such as 200kB, 2MB or 1GiB"))


def budget(text: str | float, what: str) -> Budget:
    """A quality budget: ``1pt`` (points of the metric, 0.01), ``1%`` (of the baseline), or 0.01. Raises UserError."""
    if isinstance(text, int | float):
        return _checked(Budget(amount=float(text), relative=False), text, what)
    match = _NUMBER.match(text)
    unit = match.group(2) if match else None
    if match is None or unit not in ("pt", "%", ""):
        raise UserError(f"{what} {text!r}", "is not a budget", "Give points such as 1pt, or per cent such as 1%.")
    amount = float(match.group(1)) * (1.0 if unit == "" else 0.01)
    return _checked(Budget(amount=amount, relative=unit == "%"), text, what)


def _checked(value: Budget, text: object, what: str) -> Budget:
    if not 0 <= value.amount <= 1:
        raise UserError(f"{what} {text!r}", "must lie between 0 and 100 points", "Give points such as 1pt, or 1%.")
    return value


def _positive(text: str | float, units: dict[str, float], what: str, wanted: str) -> float:
    match = _NUMBER.match(str(text))
    if match is None or match.group(2) not in units:
        raise UserError(f"{what} {text!r}", f"is not {wanted}", f"Give {wanted}.")
    value = float(match.group(1)) * units[match.group(2)]
    if value <= 0:
        raise UserError(f"{what} {text!r}", "must be above zero", f"Give {wanted}.")
    return value
