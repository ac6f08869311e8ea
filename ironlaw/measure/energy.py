"""Energy counters of the CPU packages (RAPL), through zeus where it is installed.

A counter is of the whole package: what others do on it meanwhile is in its reading, which is why blocks with
foreign load are not judged. Differences of a running total are taken, never a sampled power.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def counter() -> Callable[[], float] | None:
    """A function that gives the joules that all packages took since some moment in the past.

    None where zeus is not installed, where there is no counter, or where this process may not read it.
    """
    try:
        from zeus.device import get_cpus
    except ImportError:
        return None
    try:
        packages = get_cpus()
        total_j(packages)
    except Exception:  # noqa: BLE001 - zeus has an exception for each way of not having a counter
        return None
    return (lambda: total_j(packages)) if len(packages) else None


def total_j(packages: Any) -> float:
    """Joules of all packages with their memory, where that is counted apart."""
    found = [packages.get_total_energy_consumption(index) for index in range(len(packages))]
    return float(sum(one.cpu_mj + (one.dram_mj or 0.0) for one in found)) / 1e3
