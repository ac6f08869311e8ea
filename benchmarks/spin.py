"""A worker whose every call takes 50 us by the clock: what the protocol measures is then known beforehand.

It answers the requests of :mod:`ironlaw.worker` with that module's own code, with a session that spins until a
clock that is not the timer's (the raw monotonic one, where the system has it) has advanced by 50 us.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, cast

from ironlaw.contracts import Session
from ironlaw.worker import Worker, die_with_parent, serve

SPIN_S = 50e-6
_RAW = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)


class Spinning(Worker):
    """A worker that is loaded with a spin instead of an artefact."""

    def load(self, artefact: dict[str, Any]) -> dict[str, Any]:
        self.session = cast(Session, _Spin(int(artefact["spin_ns"])))
        return {"load_s": 0.0, "first_s": 0.0, "finite": True}


class _Spin:
    def __init__(self, spin_ns: int) -> None:
        self._spin_ns = spin_ns

    def call(self, _: object) -> None:
        clock, source = time.clock_gettime_ns, _RAW
        end = clock(source) + self._spin_ns
        while clock(source) < end:
            pass

    def prepare(self, arrays: Sequence[Any]) -> Any:
        raise TypeError("a spin takes no inputs")

    fetch = profile = certify = prepare


def main() -> None:
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(Spinning(), sys.stdin, answers)


if __name__ == "__main__":
    main()
