"""Is the drop within the budget? A paired, one-sided test on the same examples, and nothing on trust.

Non-inferiority, not difference: a candidate passes when the upper 95 % bound of its drop lies within the budget,
so an evaluation set that is too small to tell fails and says how many examples would do. Right-or-wrong scores
use Tango's score interval for paired proportions, with Clopper-Pearson's exact bound where the candidate
won no example back (score and bootstrap intervals collapse there); other scores a paired bootstrap of
the metric. A missing or NaN metric is a failure. The judge never sees a prediction.

Sources: Tango 1998, Statistics in Medicine 17:891 (eq. 4-6 and appendix); Clopper & Pearson 1934, Biometrika
26:404; Hanley & Lippman-Hand 1983, JAMA 249:1743 (rule of three); Efron & Tibshirani 1993, ch. 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ironlaw.metrics import Scalar, Scores
from ironlaw.records import Budget, Goal, Quality, UserError

LEVEL = 0.95
RESAMPLES = 10_000
LOOKS = 8
"""How often a pass may be asked whether it can stop: the error of a false stop is shared among the looks."""


# ---------------------------------------------------------------- bounds for right-or-wrong scores


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


# ---------------------------------------------------------------- judging


@dataclass(frozen=True, kw_only=True, slots=True)
class _Drop:
    """A drop in units of the metric (noise-to-signal for ``sqnr_db``): estimate, bounds, best that could be proven."""

    value: float
    low: float
    high: float
    provable: float | None


def judge(baseline: Scores, candidate: Scores, goal: Goal) -> Quality:
    """Whether ``candidate`` keeps the budget and the floor of ``goal``, paired on the same examples.

    A candidate whose pass was stopped early holds fewer scores and is compared on those. For fidelity metrics
    a floor (``min_quality``) replaces the budget, since their baseline is perfect by definition; for
    labelled ones both must hold.
    """
    _check_baseline(baseline)
    if not candidate.finite:
        return _failed(candidate.metric, baseline, f"{candidate.metric} is NaN or Inf: a missing metric is a failure")
    if candidate.metric != baseline.metric or len(candidate.values) > len(baseline.values):
        return _failed(candidate.metric, baseline, "evaluate gave scores of other examples or another metric")
    stopped = len(candidate.values) < len(baseline.values)
    paired = baseline.first(len(candidate.values))
    drop = _drop(paired, candidate)
    reasons = []
    within = not stopped
    if stopped:
        reasons.append(f"stopped after {len(candidate.values)} of {len(baseline.values)} examples: over for certain")
    if goal.min_quality is not None:
        held, words = _floor(candidate, goal.min_quality)
        within, reasons = within and held, [*reasons, words]
    if goal.min_quality is None or not candidate.fidelity:
        held, words = _budget(paired, drop, goal.max_drop)
        within, reasons = within and held, [*reasons, words]
    scale = _scale(paired, goal.max_drop)
    return Quality(
        metric=candidate.metric,
        value=candidate.value,
        baseline=paired.value,
        drop=drop.value / scale,
        low=drop.low / scale,
        high=drop.high / scale,
        examples=len(candidate.values),
        provable=None if drop.provable is None else drop.provable / scale,
        within=within,
        reason="; ".join(reasons),
    )


def judge_scalar(
    baseline: Scalar, value: float | None, goal: Goal, disagreements: int | None, examples: int | None
) -> Quality:
    """Whether a single number keeps the budget, with what ``predict`` showed beside it.

    ``disagreements``: how many of the ``examples`` that went through ``predict`` came out differently
    (:func:`ironlaw.metrics.disagreements`). A metric between 0 and 1 is taken as a share of those examples: its
    drop cannot exceed the disagreements, and the bound is the widest that any split of them into wins and
    losses allows. For other metrics only "no disagreement at all" is evidence; without evidence it fails.
    """
    _check_baseline(baseline)
    if value is None or not math.isfinite(value):
        return _failed(baseline.metric, baseline, f"{baseline.metric} is missing or NaN: that is a failure")
    sign = 1.0 if baseline.higher_is_better else -1.0
    drop = sign * (baseline.value - value)
    scale = (abs(baseline.value) or 1.0) if goal.max_drop.relative else 1.0
    bounds = _scalar_bounds(baseline.value, value, drop, disagreements, examples)
    high = None if bounds is None else bounds[1]
    within, reason = _scalar_budget(drop / scale, None if high is None else high / scale, goal, disagreements, examples)
    if goal.min_quality is not None:
        worst = value if high is None else value - sign * max(0.0, high - drop)
        held = sign * (worst - goal.min_quality) >= 0
        within = within and held
        reason = f"{reason}; {'clears' if held else 'does not clear'} the floor of {goal.min_quality:g}"
    return Quality(
        metric=baseline.metric,
        value=value,
        baseline=baseline.value,
        drop=drop / scale,
        low=None if bounds is None else bounds[0] / scale,
        high=None if high is None else high / scale,
        examples=examples or None,
        provable=clopper_pearson_upper(0, examples) / scale if examples else None,
        within=within,
        reason=reason,
    )


def certain(baseline: Scores, partial: Scores, goal: Goal) -> str | None:
    """Why a pass may stop now, or None. Only failure is ever certain early: success needs every example.

    Certain in two ways: no outcome of the examples to come could bring a right-or-wrong score within the budget;
    or the drop's *lower* bound is over the budget at a level that :data:`LOOKS` looks share.
    Ask at most that often.
    """
    if not partial.finite:
        return "the metric is NaN"
    seen, total = len(partial.values), len(baseline.values)
    paired = baseline.first(seen)
    if goal.min_quality is not None and partial.fidelity:
        return _floor_lost(partial, goal.min_quality)
    if partial.binary and baseline.binary:
        losses, wins = _discordant(paired, partial)
        allowed = goal.max_drop.amount * _scale(baseline, goal.max_drop)
        best_wins = wins + int((_badness(baseline)[seen:] == 1).sum())
        if drop_upper(losses, best_wins, total) > allowed:
            return f"{losses} examples are lost already: no outcome of the rest could prove the budget"
        lower = -drop_upper(wins, losses, seen, 1.0 - (1.0 - LEVEL) / LOOKS)
        return f"the drop is over the budget after {seen} of {total} examples" if lower > allowed else None
    if seen < 32:
        return None
    means = _bootstrap(paired, partial)
    low = float(np.quantile(_drops(partial, means), (1.0 - LEVEL) / LOOKS))
    over = low > goal.max_drop.amount * _scale(baseline, goal.max_drop)
    return f"the drop is over the budget after {seen} of {total} examples" if over else None


def stopper(baseline: Scores, goal: Goal) -> Callable[[Scores], bool]:
    """What a ready metric asks after each batch: looks :data:`LOOKS` times at most, evenly over the examples."""
    total = len(baseline.values)
    looked = 0

    def stop(partial: Scores) -> bool:
        nonlocal looked
        share = len(partial.values) * LOOKS // total
        if share <= looked or not partial.finite:
            return not partial.finite
        looked = share
        return certain(baseline, partial, goal) is not None

    return stop


# ---------------------------------------------------------------- parts


def _drop(baseline: Scores, candidate: Scores) -> _Drop:
    examples = len(candidate.values)
    unseen = clopper_pearson_upper(0, examples)
    if candidate.binary and baseline.binary:
        losses, wins = _discordant(baseline, candidate)
        return _Drop(
            value=(losses - wins) / examples,
            low=-drop_upper(wins, losses, examples),
            high=drop_upper(losses, wins, examples),
            provable=unseen,
        )
    drops = _drops(candidate, _bootstrap(baseline, candidate))
    low, high = (float(q) for q in np.quantile(drops, (1.0 - LEVEL, LEVEL)))
    value = float(_drops(candidate, np.array([[baseline.values.mean(), candidate.values.mean()]]))[0])
    provable = _rare(baseline, unseen)
    if bool((baseline.values == candidate.values).all()):
        high = max(high, provable)
    return _Drop(value=value, low=min(low, value), high=max(high, value), provable=provable)


def _rare(baseline: Scores, rate: float) -> float:
    """What unseen disagreements could cost: their rate times the spread of scores, in units of the metric.

    A disagreement is taken to cost no more than the distance between the best and the worst score seen; for
    fidelity scores, all alike on the baseline, no more than all of it (1).
    """
    values = baseline.values
    spread = 1.0 if baseline.fidelity else float(values.max() - values.min())
    mean = float(values.mean())
    worse = mean + rate * spread * (-1.0 if _rising(baseline) else 1.0)
    if baseline.aggregate == "rmse":
        worse = max(worse, 0.0)
    return float(_drops(baseline, np.array([[mean, worse]]))[0])


def _discordant(baseline: Scores, candidate: Scores) -> tuple[int, int]:
    before, after = _badness(baseline), _badness(candidate)
    return int((after > before).sum()), int((after < before).sum())


def _badness(scores: Scores) -> NDArray[np.float64]:
    """1 where a right-or-wrong score is the bad one."""
    return np.asarray(1.0 - scores.values if scores.higher_is_better else scores.values, dtype=np.float64)


def _rising(scores: Scores) -> bool:
    """Whether a greater per-example score is better (for ``sqnr_db`` the score is noise, the metric is not)."""
    return scores.higher_is_better and scores.aggregate != "sqnr_db"


def _bootstrap(baseline: Scores, candidate: Scores) -> NDArray[np.float64]:
    """Means of resampled pairs: (resamples, 2), baseline then candidate; examples are drawn together."""
    pairs = np.stack([baseline.values, candidate.values], axis=1)
    examples = len(pairs)
    resamples = min(RESAMPLES, max(1_000, 10**8 // examples))
    rng = np.random.default_rng(0)
    means = np.empty((resamples, 2))
    step = max(1, 2_000_000 // examples)
    for start in range(0, resamples, step):
        rows = rng.integers(0, examples, size=(min(step, resamples - start), examples))
        means[start : start + len(rows)] = pairs[rows].mean(axis=1)
    return means


def _drops(scores: Scores, means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Drops for pairs of means, above 0 worse: of the metric, or of the noise-to-signal ratio for ``sqnr_db``."""
    if scores.aggregate == "sqnr_db":
        return np.asarray(means[:, 1] - means[:, 0])
    metric = scores.of_means(means)
    return np.asarray(scores.oriented * (metric[:, 0] - metric[:, 1]))


def _scale(baseline: Scores, budget: Budget) -> float:
    """What a drop is divided by: the baseline where the budget is relative (noise-to-signal is so already)."""
    if not budget.relative or baseline.aggregate == "sqnr_db":
        return 1.0
    return abs(baseline.value) or 1.0


def _budget(baseline: Scores, drop: _Drop, budget: Budget) -> tuple[bool, str]:
    scale = _scale(baseline, budget)
    high = drop.high / scale
    unit = "%" if budget.relative else " pt"
    said = f"the drop is at most {high * 100:.3g}{unit} (95 %) against a budget of {budget}"
    if high <= budget.amount:
        return True, said
    if drop.provable is not None and drop.provable / scale > budget.amount:
        needed = examples_needed(budget.amount * scale) if baseline.binary else None
        enough = f"; at least {needed} examples would be needed" if needed else ""
        return False, f"{len(baseline.values)} examples cannot prove {budget}: {said}{enough}"
    return False, said


def _floor(candidate: Scores, floor: float) -> tuple[bool, str]:
    bound = _worst(candidate, LEVEL)
    held = bound >= floor if candidate.higher_is_better else bound <= floor
    words = "clears" if held else "does not clear"
    return held, f"{candidate.metric} of {candidate.value:.4g} (95 %: {bound:.4g}) {words} the floor of {floor:g}"


def _floor_lost(partial: Scores, floor: float) -> str | None:
    if len(partial.values) < 32:
        return None
    best = _worst(partial, (1.0 - LEVEL) / LOOKS)
    lost = best < floor if partial.higher_is_better else best > floor
    return f"the floor of {floor:g} is out of reach after {len(partial.values)} examples" if lost else None


def _worst(scores: Scores, level: float) -> float:
    """The metric's bound on its bad side at ``level`` (a small level gives the bound on the good side)."""
    if scores.binary:
        bad = int(_badness(scores).sum())
        if level >= 0.5:
            share = clopper_pearson_upper(bad, len(scores.values), level)
        else:
            share = 1.0 - clopper_pearson_upper(len(scores.values) - bad, len(scores.values), 1.0 - level)
        return 1.0 - share if scores.higher_is_better else share
    metric = scores.of_means(_bootstrap(scores, scores)[:, 1])
    return float(np.quantile(metric, 1.0 - level if scores.higher_is_better else level))


def _scalar_bounds(
    baseline: float, value: float, drop: float, disagreements: int | None, examples: int | None
) -> tuple[float, float] | None:
    """The drop's bounds from disagreements: (low, high), or None where they say nothing."""
    if not examples or disagreements is None:
        return None
    if not (min(baseline, value) >= 0.0 and max(baseline, value) <= 1.0):
        unseen = clopper_pearson_upper(0, examples) * abs(baseline)
        return (drop - unseen, drop + unseen) if disagreements == 0 else None
    moved = round(drop * examples)
    if abs(moved) > disagreements:
        return None
    losses = (disagreements + moved + 1) // 2
    wins = max(0, losses - moved)
    return -drop_upper(wins, losses, examples), max(drop_upper(losses, wins, examples), drop)


def _scalar_budget(
    drop: float, high: float | None, goal: Goal, disagreements: int | None, examples: int | None
) -> tuple[bool, str]:
    unit = "%" if goal.max_drop.relative else " pt"
    if drop > goal.max_drop.amount:
        return False, f"the drop is {drop * 100:.3g}{unit} against a budget of {goal.max_drop}"
    if high is None:
        seen = (
            "how many examples differ is not known"
            if disagreements is None
            else f"{disagreements} of {examples} differ"
        )
        return False, f"{seen}, and one number cannot bound the drop: return one score an example from evaluate"
    bounded = f"{disagreements} of {examples} examples differ, which bounds the drop at {high * 100:.3g}{unit}"
    if high <= goal.max_drop.amount:
        return True, f"{bounded}, within the budget of {goal.max_drop}"
    return False, f"{bounded}, over the budget of {goal.max_drop}: return one score an example from evaluate"


def _check_baseline(baseline: Scores | Scalar) -> None:
    if not math.isfinite(baseline.value):
        raise UserError(f"metric {baseline.metric!r}", "is NaN or Inf on the baseline", "Check evaluate and its data.")


def _failed(metric: str, baseline: Scores | Scalar, reason: str) -> Quality:
    return Quality(
        metric=metric,
        value=None,
        baseline=baseline.value,
        drop=None,
        low=None,
        high=None,
        examples=None,
        provable=None,
        within=False,
        reason=reason,
    )
