"""How a record shows itself in a notebook. Records know no report: whoever can draw one says so here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_DRAWINGS: dict[type, Callable[[Any], str]] = {}


class Shown:
    """A record that a notebook shows as HTML, once :func:`drawn_by` was told how."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        draw = _DRAWINGS.get(type(self))
        return None if draw is None else draw(self)


def drawn_by(kind: type[Shown], draw: Callable[[Any], str]) -> None:
    """Records of that type are shown as the HTML that ``draw`` makes of them."""
    _DRAWINGS[kind] = draw
