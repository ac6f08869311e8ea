"""Refusals shared by the laws: each names the input, what it must be and what was given."""

from __future__ import annotations

import math
import numbers


def positive(**values: float) -> None:
    """Raise ``ValueError`` unless every value is finite and above 0."""
    for name, value in values.items():
        _number(name, value)
        if value <= 0:
            raise ValueError(f"{name} must be above 0, got {value:g}")


def nonnegative(**values: float) -> None:
    """Raise ``ValueError`` unless every value is finite and at least 0."""
    for name, value in values.items():
        _number(name, value)
        if value < 0:
            raise ValueError(f"{name} must be at least 0, got {value:g}")


def fraction(**values: float) -> None:
    """Raise ``ValueError`` unless every value lies in [0, 1]."""
    for name, value in values.items():
        _number(name, value)
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {value:g}")


def quantile(**values: float) -> None:
    """Raise ``ValueError`` unless every value lies in [0, 1): no waiting time is bounded with certainty."""
    for name, value in values.items():
        _number(name, value)
        if not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {value:g}")


def whole(minimum: int = 1, **values: float) -> None:
    """Raise ``ValueError`` unless every value is a whole number of at least ``minimum``."""
    for name, value in values.items():
        _number(name, value)
        if value != int(value) or value < minimum:
            raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value:g}")


def _number(name: str, value: object) -> None:
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
