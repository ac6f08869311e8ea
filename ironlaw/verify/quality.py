"""Is the drop within the budget? A paired, one-sided test on the same examples, and nothing on trust.

Non-inferiority, not difference: a candidate passes when the upper 95 % bound of its drop lies within the budget,
so an evaluation set that is too small to tell fails and says how many examples would do. Right-or-wrong scores
use the bounds of :mod:`ironlaw.verify.bounds`; other scores a paired bootstrap of the metric (Efron &
Tibshirani 1993, ch. 13). A missing or NaN metric is a failure. The judge never sees a prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ironlaw.metrics import Scores
from ironlaw.records import Budget, Goal, Quality
from ironlaw.verify.bounds import LEVEL, clopper_pearson_upper, drop_upper, examples_needed
from ironlaw.verify.missing import check_baseline, failed
from ironlaw.verify.scalar import judge_scalar

__all__ = ["judge", "judge_scalar"]

RESAMPLES = 10_000


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
    check_baseline(baseline)
    if not candidate.finite:
        return failed(candidate.metric, baseline, f"{candidate.metric} is NaN or Inf: a missing metric is a failure")
    if candidate.metric != baseline.metric or len(candidate.values) > len(baseline.values):
        return failed(candidate.metric, baseline, "evaluate gave scores of other examples or another metric")
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
    scale = scale_of(paired, goal.max_drop)
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


# ---------------------------------------------------------------- parts


def _drop(baseline: Scores, candidate: Scores) -> _Drop:
    examples = len(candidate.values)
    unseen = clopper_pearson_upper(0, examples)
    if candidate.binary and baseline.binary:
        losses, wins = discordant(baseline, candidate)
        return _Drop(
            value=(losses - wins) / examples,
            low=-drop_upper(wins, losses, examples),
            high=drop_upper(losses, wins, examples),
            provable=unseen,
        )
    resampled = drops(candidate, bootstrap(baseline, candidate))
    low, high = (float(q) for q in np.quantile(resampled, (1.0 - LEVEL, LEVEL)))
    value = float(drops(candidate, np.array([[baseline.values.mean(), candidate.values.mean()]]))[0])
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
    return float(drops(baseline, np.array([[mean, worse]]))[0])


def discordant(baseline: Scores, candidate: Scores) -> tuple[int, int]:
    before, after = badness(baseline), badness(candidate)
    return int((after > before).sum()), int((after < before).sum())


def badness(scores: Scores) -> NDArray[np.float64]:
    """1 where a right-or-wrong score is the bad one."""
    return np.asarray(1.0 - scores.values if scores.higher_is_better else scores.values, dtype=np.float64)


def _rising(scores: Scores) -> bool:
    """Whether a greater per-example score is better (for ``sqnr_db`` the score is noise, the metric is not)."""
    return scores.higher_is_better and scores.aggregate != "sqnr_db"


def bootstrap(baseline: Scores, candidate: Scores) -> NDArray[np.float64]:
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


def drops(scores: Scores, means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Drops for pairs of means, above 0 worse: of the metric, or of the noise-to-signal ratio for ``sqnr_db``."""
    if scores.aggregate == "sqnr_db":
        return np.asarray(means[:, 1] - means[:, 0])
    metric = scores.of_means(means)
    return np.asarray(scores.oriented * (metric[:, 0] - metric[:, 1]))


def scale_of(baseline: Scores, budget: Budget) -> float:
    """What a drop is divided by: the baseline where the budget is relative (noise-to-signal is so already)."""
    if not budget.relative or baseline.aggregate == "sqnr_db":
        return 1.0
    return abs(baseline.value) or 1.0


def _budget(baseline: Scores, drop: _Drop, budget: Budget) -> tuple[bool, str]:
    scale = scale_of(baseline, budget)
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
    bound = worst(candidate, LEVEL)
    held = bound >= floor if candidate.higher_is_better else bound <= floor
    words = "clears" if held else "does not clear"
    return held, f"{candidate.metric} of {candidate.value:.4g} (95 %: {bound:.4g}) {words} the floor of {floor:g}"


def worst(scores: Scores, level: float) -> float:
    """The metric's bound on its bad side at ``level`` (a small level gives the bound on the good side)."""
    if scores.binary:
        bad = int(badness(scores).sum())
        if level >= 0.5:
            share = clopper_pearson_upper(bad, len(scores.values), level)
        else:
            share = 1.0 - clopper_pearson_upper(len(scores.values) - bad, len(scores.values), 1.0 - level)
        return 1.0 - share if scores.higher_is_better else share
    metric = scores.of_means(bootstrap(scores, scores)[:, 1])
    return float(np.quantile(metric, 1.0 - level if scores.higher_is_better else level))
