"""Records as JSON and back, and their content address. NaN and Inf are refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ironlaw.records.vocabulary import Pairs

T = TypeVar("T")


def to_data(value: Any) -> Any:
    """A record as plain lists and dicts. ``Pairs`` become objects; NaN and Inf are refused."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        return {
            f.name: dict(getattr(value, f.name)) if hints[f.name] == Pairs else to_data(getattr(value, f.name))
            for f in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(k): to_data(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_data(v) for v in value]
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a record holds NaN or Inf: unknown is None with a reason")
    return value


def to_json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(to_data(value), indent=indent, sort_keys=False, allow_nan=False)


def from_data(cls: type[T], data: Any) -> T:
    """The record of type ``cls`` that :func:`to_data` wrote. Unknown keys are an error."""
    hints = _hints(typing.cast(Any, cls))
    unknown = set(data) - set(hints)
    if unknown:
        raise ValueError(f"{cls.__name__} has no {sorted(unknown)}")
    return cls(**{name: _decode(hints[name], value) for name, value in data.items()})


def from_json(cls: type[T], text: str) -> T:
    return from_data(cls, json.loads(text))


def digest_of(value: Any) -> str:
    """Content address of a record: sha256 of its canonical JSON."""
    text = json.dumps(to_data(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(hint: Any, value: Any) -> Any:
    if hint == Pairs:
        return tuple((str(k), v) for k, v in value.items())
    if value is None:
        return None
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = [a for a in typing.get_args(hint) if a is not type(None)][:1]
        return _decode(inner, value)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_decode(inner, v) for v in value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_data(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    if hint is float and isinstance(value, int):
        return float(value)
    return value
