"""What a fresh Python process costs: the price of isolation that every measured launch pays."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import ClassVar

from ironlaw.machine.gate import Found, ceiling


class SpawnProbe:
    """``spawn``: seconds to start an interpreter that does nothing and to wait for it."""

    name: ClassVar[str] = "spawn"

    def measure(self, threads: int, seconds: float) -> Found:
        samples: list[float] = []
        end = time.perf_counter() + seconds
        while len(samples) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            samples.append(time.perf_counter() - start)
        return (ceiling("spawn", "s", samples, note="python -c pass"),)
