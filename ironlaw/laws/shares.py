"""How sure a share is that was counted."""

from __future__ import annotations

import math


def wilson(hits: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """The score interval of a share (Wilson 1927): 95 % at the default ``z``."""
    if trials <= 0 or not 0 <= hits <= trials:
        raise ValueError(f"{hits} of {trials} is no share")
    share, spread = hits / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
