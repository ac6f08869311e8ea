"""Mistakes as text for people and as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ironlaw.linting.rules import Mistake

SCHEMA = "ironlaw.lint/1"


def in_words(path: str | Path, found: Sequence[Mistake]) -> str:
    """A line to jump to for each mistake, with why it matters and what to write instead."""
    if not found:
        return f"{path}: no timing mistake found"
    parts = [
        f"{path}:{one.line}: {one.rule}: {one.message}\n    {one.why}\n    instead: {one.instead}" for one in found
    ]
    return "\n".join([*parts, f"{len(found)} timing mistake{'s' if len(found) > 1 else ''}"])


def as_data(path: str | Path, found: Sequence[Mistake]) -> dict[str, Any]:
    """``{schema, file, mistakes: [{rule, line, message, why, instead}]}``."""
    return {"schema": SCHEMA, "file": str(path), "mistakes": [asdict(one) for one in found]}
