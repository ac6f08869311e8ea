"""The co-runner: a process that copies memory on its own processors until it is stopped.

``python -m ironlaw.perturbing.streamer`` answers the JSON lines of a worker. ``start`` returns once every thread has
walked its buffers, so that what is then stopped and continued by signal streams at once and faults no more.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np

from ironlaw.worker import die_with_parent, serve

CHUNK_BYTES = 4 << 20


class Streamer:
    """Answers ``start`` and goes on copying in the background."""

    def start(self, total_bytes: int, cpus: list[int]) -> dict[str, Any]:
        """One thread on each processor, which share ``total_bytes``; returns when all have walked theirs once."""
        walked = threading.Barrier(len(cpus) + 1)
        for cpu in cpus:
            threading.Thread(target=_copy, args=(total_bytes // len(cpus) // 2, cpu, walked), daemon=True).start()
        walked.wait()
        return {}


def _copy(size: int, cpu: int, walked: threading.Barrier) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})  # 0 is the calling thread
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    starts = range(0, size, CHUNK_BYTES)
    first = True
    while True:
        for start in starts:
            np.copyto(target[start : start + CHUNK_BYTES], source[start : start + CHUNK_BYTES])
        if first:
            walked.wait()
            first = False


def main() -> None:
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(Streamer(), sys.stdin, answers)


if __name__ == "__main__":
    main()
