"""How often and how long operators are profiled, and which of a few profiles is believed.

Where others use the CPU, threads that wait for each other can take twenty times as long: a profile whose operators take
much longer than a timed call is taken again. Not of slow calls, whose profile is dear, nor where no call was timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

PROFILE_S = 2.0
"""About what one profile takes, within :data:`CALLS`."""
CALLS = (2, 20)
UNDISTURBED, PROFILES = 1.5, 3
"""Timed calls that the operators of a call may take, and profiles at most."""


class Profiler(Protocol):
    """A loaded artefact that can be profiled."""

    def profile(self, calls: int) -> list[dict[str, Any]]:
        """Operators of one call with their ``time_s``, as data."""


def profiled(worker: Profiler, calls_s: Sequence[float]) -> list[dict[str, Any]]:
    """The least disturbed of a few profiles; ``calls_s`` is what a call took in each launch so far."""
    calls, call_s = _calls(max(calls_s, default=0.0)), min(calls_s, default=0.0)
    found = [worker.profile(calls)]
    cheap = 0.0 < calls * call_s <= PROFILE_S
    while cheap and len(found) < PROFILES and _total_s(found[-1]) > UNDISTURBED * call_s:
        found.append(worker.profile(calls))
    return min(found, key=_total_s)


def _calls(call_s: float) -> int:
    least, most = CALLS
    return most if call_s <= 0 else max(least, min(most, int(PROFILE_S / call_s)))


def _total_s(ops: Sequence[dict[str, Any]]) -> float:
    return sum(op["time_s"] or 0.0 for op in ops)
