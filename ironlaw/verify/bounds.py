"""One-sided bounds of a drop between right-or-wrong scores that are paired on the same examples.

Tango's score interval, with Clopper-Pearson's exact bound where the candidate won no example back: score
intervals collapse there, and the exact one is what makes "no disagreement in n examples" mean something.

Sources: Tango 1998, Statistics in Medicine 17:891 (eq. 4-6 and appendix); Clopper & Pearson 1934, Biometrika
26:404; Hanley & Lippman-Hand 1983, JAMA 249:1743 (rule of three).
"""

from __future__ import annotations

import math
from functools import lru_cache

LEVEL = 0.95


def tango_upper(losses: int, wins: int, examples: int, level: float = LEVEL) -> float:
    """One-sided upper bound of the drop p(loss) - p(win) from paired outcomes, by inverting Tango's score test.

    ``losses``: baseline right, candidate wrong; ``wins``: the reverse. Between -1 and 1. Holds asymptotically;
    with few disagreements its coverage falls a point short (:func:`drop_upper` mends the worst case).
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    z = float(norm.ppf(level))

    def excess(drop: float) -> float:
        return _tango_statistic(losses, wins, examples, drop) + z

    estimate = (losses - wins) / examples
    if estimate >= 1.0 or excess(1.0 - 1e-12) > 0:
        return 1.0
    return float(brentq(excess, estimate, 1.0 - 1e-12, xtol=1e-12))


def _tango_statistic(losses: int, wins: int, examples: int, drop: float) -> float:
    """(b - c - nΔ) / sqrt(n(2q + Δ(1 - Δ))), q the restricted maximum-likelihood estimate of p(win)."""
    a = 2.0 * examples
    b = (2.0 * examples - losses + wins) * drop - losses - wins
    c = -wins * drop * (1.0 - drop)
    win_rate = (math.sqrt(max(b * b - 4.0 * a * c, 0.0)) - b) / (2.0 * a)
    variance = examples * (2.0 * win_rate + drop * (1.0 - drop))
    distance = losses - wins - examples * drop
    if variance <= 0.0:
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def clopper_pearson_upper(events: int, examples: int, level: float = LEVEL) -> float:
    """Exact one-sided upper bound of a proportion; 1 - (1 - level)^(1/n) when nothing was seen."""
    from scipy.stats import beta

    return 1.0 if events >= examples else float(beta.ppf(level, events + 1, examples - events))


@lru_cache(maxsize=4096)
def drop_upper(losses: int, wins: int, examples: int, level: float = LEVEL) -> float:
    """Upper bound of the drop: Tango's, and where there are no wins the exact one on the losses.

    The drop is never more than the rate of losses, so the exact bound always holds; it is needed where score
    intervals are too short. 0 of 360 bounds the drop at 0.83 pt.
    """
    exact = clopper_pearson_upper(losses, examples, level)
    return exact if wins == 0 else min(exact, tango_upper(losses, wins, examples, level))


def examples_needed(budget: float, level: float = LEVEL) -> int | None:
    """The least number of examples that, without one disagreement, prove a drop below ``budget``; None: no number."""
    if budget <= 0.0:
        return None
    return 1 if budget >= 1.0 else math.ceil(math.log(1.0 - level) / math.log1p(-budget))
