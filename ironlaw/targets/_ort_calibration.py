"""Rates of ONNX Runtime's kernels (being filled in)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ironlaw.records import KernelRate


def rates(threads: int, seconds: float, *, open_session: Callable[..., Any]) -> tuple[KernelRate, ...]:
    """None measured."""
    return ()
