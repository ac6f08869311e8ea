"""A case: a situation met in public, the verdict that is due, and a cured twin for which it is not.

Why twins: a tool that always warns would be right on every case. An answer counts as *right* when the verdict is
given on the situation and not on its twin, as *undetermined* when ironlaw says so of either, and as *wrong* when it
is confident of the opposite, or warns of the twin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ironlaw.validating.here import Here


class Outcome(StrEnum):
    """What an answer counts as."""

    RIGHT = "right"
    UNDETERMINED = "undetermined"
    WRONG = "wrong"


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What ironlaw said: ``fires`` is whether it gave the verdict in question, None when it cannot tell."""

    fires: bool | None
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One case. ``numbers`` are those of the collected list, ``reference`` where it was met.

    ``replayed`` says that it is put on recorded ledgers and published machines, since what it needs is not here.
    """

    name: str
    numbers: tuple[int, ...]
    reference: str
    situation: str
    verdict: str
    cured: str
    ask: Callable[[Here], Said]
    ask_cured: Callable[[Here], Said]
    replayed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A case with what was said of it."""

    case: Case
    said: Said
    cured: Said
    seconds: float

    @property
    def outcome(self) -> Outcome:
        if self.said.fires is False or self.cured.fires is True:
            return Outcome.WRONG
        if self.said.fires is None or self.cured.fires is None:
            return Outcome.UNDETERMINED
        return Outcome.RIGHT
