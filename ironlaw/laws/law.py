"""What a law declares, and how inputs are read against that declaration.

Why declared beside the function: the calculator of the command line, the generated page and the
tests all read the same record, so that a law is added in one file. It refuses inputs that are
unknown, missing, outside their range or not of their kind, all in one message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Number = int | float
Result = float | dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One input of a law. ``low`` and ``high`` bound it, inclusive unless ``above``/``below`` say otherwise.

    ``whole`` asks for integers, ``many`` for a list of numbers, ``choices`` for one of some words.
    ``default`` is taken when the input is left out; None means that it must be given.
    """

    name: str
    unit: str
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    whole: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()
    default: Number | str | None = None

    @property
    def valid(self) -> str:
        """The valid range, as words for people: ``whole, at least 1`` or ``in [0, 1)``."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = (["a list"] if self.many else []) + (["whole"] if self.whole else [])
        if math.isfinite(self.low) and math.isfinite(self.high):
            left, right = "(" if self.above else "[", ")" if self.below else "]"
            words.append(f"in {left}{self.low:g}, {self.high:g}{right}")
        elif math.isfinite(self.low):
            words.append(f"{'above' if self.above else 'at least'} {self.low:g}")
        return ", ".join(words) or "any number"

    def read(self, given: object) -> Any:
        """The value as the law takes it: numbers, lists of numbers and their text are read.

        Raises ``ValueError`` when it is not of this kind or outside the range.
        """
        if self.choices:
            if given not in self.choices:
                raise ValueError(f"{self.name} must be {self.valid}, got {given!r}")
            return given
        if not self.many:
            return self._one(given)
        items = given.split(",") if isinstance(given, str) else given
        if not isinstance(items, Sequence):
            raise ValueError(f"{self.name} must be a list of numbers, got {given!r}")
        return [self._one(item) for item in items]

    def _one(self, given: object) -> Number:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError(f"{self.name} must be a number, got {given!r}")
        try:
            value = float(given)
        except ValueError:
            raise ValueError(f"{self.name} must be a number, got {given!r}") from None
        if not math.isfinite(value):
            raise ValueError(f"{self.name} must be a finite number, got {given!r}")
        below = value < self.low or (self.above and value == self.low)
        over = value > self.high or (self.below and value == self.high)
        if below or over or (self.whole and value != int(value)):
            raise ValueError(f"{self.name} must be {self.valid}, got {given}")
        return int(value) if self.whole else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """One law of the catalogue. ``function`` takes the inputs by name; ``example`` is a worked call."""

    name: str
    family: str
    title: str
    equation: str
    inputs: tuple[Input, ...]
    unit: str
    valid_while: str
    source: str
    function: Callable[..., Any]
    example: tuple[tuple[str, Any], ...]

    def read(self, given: Mapping[str, object]) -> dict[str, Any]:
        """The inputs as the function takes them, defaults filled in.

        Raises ``ValueError`` that lists every unknown, missing and invalid input at once.
        """
        known = {i.name: i for i in self.inputs}
        wrong = [f"{name} is not an input" for name in given if name not in known]
        values: dict[str, Any] = {}
        for item in self.inputs:
            if given.get(item.name) is None:
                if item.default is None:
                    wrong.append(f"{item.name} is missing ({item.meaning}; {item.unit}; {item.valid})")
                values[item.name] = item.default
                continue
            try:
                values[item.name] = item.read(given[item.name])
            except ValueError as error:
                wrong.append(str(error))
        if wrong:
            raise ValueError(f"law {self.name}: {'; '.join(wrong)}. Its inputs: {', '.join(known)}")
        return values


def above_zero(name: str, unit: str, meaning: str, **more: Any) -> Input:
    """An input that must be above 0."""
    return Input(name=name, unit=unit, meaning=meaning, low=0, above=True, **more)


def at_least(low: float, name: str, unit: str, meaning: str, **more: Any) -> Input:
    """An input with a lower bound."""
    return Input(name=name, unit=unit, meaning=meaning, low=low, **more)


def count(name: str, meaning: str, low: int = 1, **more: Any) -> Input:
    """A whole number of things."""
    return Input(name=name, unit="1", meaning=meaning, low=low, whole=True, **more)


def share(name: str, meaning: str, **more: Any) -> Input:
    """A fraction in [0, 1]."""
    return Input(name=name, unit="1", meaning=meaning, low=0, high=1, **more)
