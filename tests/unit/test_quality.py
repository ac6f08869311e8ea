"""The judge of quality: published intervals, closed forms, coverage, and what must never pass."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest, norm

from ironlaw.metrics import Scalar, Scores
from ironlaw.records import Budget, Goal, UserError
from ironlaw.verify import bounds, stopping
from ironlaw.verify import quality as q


def right(n, wrong=()):
    values = np.ones(n)
    values[list(wrong)] = 0.0
    return Scores(values=values, metric="top1")


def goal(points=1.0, relative=False, floor=None):
    return Goal(max_drop=Budget(amount=points / 100, relative=relative), min_quality=floor)


# ---------------------------------------------------------------- published values and closed forms


def test_tango_reproduces_the_airway_example():
    # Fagerland, Lydersen & Laake 2014 (Stat. Med. 33:2850), Bentur data: 1, 1, 7, 12 of 21: (-0.517, -0.026)
    assert -bounds.tango_upper(7, 1, 21, 0.975) == pytest.approx(-0.517, abs=5e-4)
    assert bounds.tango_upper(1, 7, 21, 0.975) == pytest.approx(-0.026, abs=5e-4)


def test_statistic_at_zero_is_mcnemars():
    # Agresti, Categorical Data Analysis (approval ratings of 1600): 150 against 86, z^2 = 17.36
    z = bounds._tango_statistic(150, 86, 1600, 0.0)
    assert z == pytest.approx((150 - 86) / math.sqrt(150 + 86))
    assert z**2 == pytest.approx(17.36, abs=0.005)


@pytest.mark.parametrize(
    ("losses", "wins", "n", "drop"), [(5, 2, 50, 0.1), (0, 3, 40, 0.05), (12, 2, 50, 0.3), (7, 7, 90, -0.04)]
)
def test_restricted_estimate_maximises_the_likelihood(losses, wins, n, drop):
    """The closed form of q against a numerical search over the multinomial likelihood."""

    def minus_log(win):
        loss, rest = win + drop, 1 - 2 * win - drop
        if min(win, loss, rest) <= 0:
            return 1e9
        return -(losses * math.log(loss) + wins * math.log(win) + (n - losses - wins) * math.log(rest))

    low = max(0.0, -drop)
    best = minimize_scalar(minus_log, bounds=(low, (1 - drop) / 2), method="bounded", options={"xatol": 1e-10}).x
    expected = (losses - wins - n * drop) / math.sqrt(n * (2 * best + drop * (1 - drop)))
    assert bounds._tango_statistic(losses, wins, n, drop) == pytest.approx(expected, rel=1e-4)


def test_no_disagreement_of_360_bounds_at_083_points():
    assert bounds.drop_upper(0, 0, 360) == pytest.approx(1 - 0.05 ** (1 / 360))
    assert round(bounds.drop_upper(0, 0, 360) * 100, 2) == 0.83


@pytest.mark.parametrize(("events", "n"), [(0, 20), (1, 20), (7, 33), (20, 20)])
def test_clopper_pearson_against_scipy(events, n):
    theirs = binomtest(events, n, alternative="less").proportion_ci(0.95, method="exact").high
    assert bounds.clopper_pearson_upper(events, n) == pytest.approx(theirs)


@given(st.floats(1e-4, 0.5))
def test_examples_needed_is_the_least(budget):
    n = bounds.examples_needed(budget)
    assert bounds.clopper_pearson_upper(0, n) <= budget * (1 + 1e-9)
    assert n == 1 or bounds.clopper_pearson_upper(0, n - 1) > budget * (1 - 1e-9)


# ---------------------------------------------------------------- laws


@given(st.integers(1, 400), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=150, deadline=None)
def test_bound_rises_with_losses_and_falls_with_wins(n, losses, wins):
    n = max(n, losses + wins + 1)
    bound = bounds.drop_upper(losses, wins, n)
    assert (losses - wins) / n <= bound <= 1.0
    assert bounds.drop_upper(losses + 1, wins, n) >= bound - 1e-9
    assert bounds.drop_upper(losses, wins + 1, n) <= bound + 1e-9
    assert bounds.drop_upper(2 * losses, 2 * wins, 2 * n) <= bound + 1e-9


@pytest.mark.parametrize(
    ("win", "loss", "n"), [(0.0, 0.01, 100), (0.01, 0.02, 100), (0.02, 0.02, 60), (0.03, 0.08, 40), (0.002, 0.006, 900)]
)
def test_coverage_of_the_upper_bound_exactly(win, loss, n):
    """The true drop lies under the 95 % bound with probability near 95 %, by summing over every outcome."""
    counts = range(min(n, 40) + 1)
    covered = seen = 0.0
    for b in counts:
        for c in counts:
            if b + c > n:
                continue
            log = math.lgamma(n + 1) - math.lgamma(b + 1) - math.lgamma(c + 1) - math.lgamma(n - b - c + 1)
            log += b * math.log(loss) + (c * math.log(win) if win else (0.0 if c == 0 else -math.inf))
            chance = math.exp(log + (n - b - c) * math.log(1 - loss - win))
            if chance > 1e-9:
                seen += chance
                covered += chance * (bounds.drop_upper(b, c, n) >= loss - win)
    assert seen == pytest.approx(1.0, abs=1e-5)
    assert covered >= 0.93  # Tango's own one-sided coverage at small samples


@pytest.mark.slow
def test_coverage_of_the_bootstrap():
    """Correlated squared errors, 150 examples: the bound of the RMSE's rise covers in about 95 of 100."""
    rng = np.random.default_rng(7)
    covered, rounds = 0, 120
    truth = math.sqrt(1.0 + 0.3**2) - 1.0  # candidate's error: the baseline's plus independent noise of 0.3
    for _ in range(rounds):
        error = rng.normal(size=150)
        noisy = error + 0.3 * rng.normal(size=150)
        before = Scores(values=error**2, metric="rmse", higher_is_better=False, aggregate="rmse")
        after = Scores(values=noisy**2, metric="rmse", higher_is_better=False, aggregate="rmse")
        covered += q.judge(before, after, goal()).high >= truth
    assert covered >= 0.95 * rounds + norm.ppf(0.005) * math.sqrt(rounds * 0.05 * 0.95)


# ---------------------------------------------------------------- verdicts


def test_identical_scores_pass_only_when_the_data_can_prove_it():
    assert q.judge(right(360), right(360), goal(1.0)).within
    verdict = q.judge(right(360), right(360), goal(0.5))
    assert not verdict.within
    assert "at least 598 examples" in verdict.reason
    assert verdict.provable == pytest.approx(0.008287, abs=1e-5)


def test_a_point_estimate_within_the_budget_is_not_enough():
    verdict = q.judge(right(200), right(200, wrong=[0]), goal(1.0))
    assert verdict.drop == pytest.approx(0.005)
    assert verdict.high > 0.01
    assert not verdict.within


def test_wins_count_and_pairs_matter():
    before = right(900, wrong=range(9))
    same_rate = right(900, wrong=range(3, 12))  # three wins, three losses
    assert q.judge(before, same_rate, goal(1.0)).drop == pytest.approx(0.0)
    assert q.judge(before, same_rate, goal(1.0)).within


def test_relative_budget_divides_by_the_baseline():
    before = right(2000, wrong=range(1000))
    after = right(2000, wrong=range(1008))
    absolute, relative = (q.judge(before, after, goal(1.0, relative=r)) for r in (False, True))
    assert relative.drop == pytest.approx(2 * absolute.drop)
    assert relative.high == pytest.approx(2 * absolute.high)
    assert absolute.within
    assert not relative.within


def test_lower_is_better_is_turned():
    before = Scores(values=np.full(64, 2.0), metric="perplexity", higher_is_better=False, aggregate="exp_mean")
    after = Scores(values=np.full(64, 2.1), metric="perplexity", higher_is_better=False, aggregate="exp_mean")
    verdict = q.judge(before, after, goal(20.0, relative=True))
    assert verdict.drop == pytest.approx(math.exp(0.1) - 1)
    assert verdict.within
    assert not q.judge(before, after, goal(5.0, relative=True)).within
    better = q.judge(after, before, goal(1.0))
    assert better.drop < 0
    assert better.within


def noise(values):
    return Scores(values=np.asarray(values), metric="sqnr_db", aggregate="sqnr_db", fidelity=True)


def test_sqnr_floor_needs_its_lower_bound():
    clean = noise(np.zeros(100))
    steady = noise(np.full(100, 10 ** (-1.6)))  # 16 dB everywhere
    verdict = q.judge(clean, steady, goal(floor=15.0))
    assert verdict.value == pytest.approx(16.0)
    assert verdict.within
    spread = np.full(100, 1e-4)
    spread[:5] = 0.45  # 16.5 dB pooled, but five bad examples carry all of it
    wide = q.judge(clean, noise(spread), goal(floor=15.0))
    assert wide.value > 15.0
    assert not wide.within


def test_sqnr_budget_in_points_is_noise_to_signal():
    clean = noise(np.zeros(400))
    assert q.judge(clean, noise(np.full(400, 0.009)), goal(1.0)).within  # 20.5 dB
    assert not q.judge(clean, noise(np.full(400, 0.011)), goal(1.0)).within  # 19.6 dB


def test_accuracy_with_a_floor_needs_both():
    before, after = right(900, wrong=range(9)), right(900, wrong=range(9))
    assert q.judge(before, after, goal(1.0, floor=0.98)).within
    assert not q.judge(before, after, goal(1.0, floor=0.99)).within  # 0.99 seen, its lower bound is less


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_is_a_failure_never_a_win(bad):
    after = right(100)
    after.values[3] = bad
    verdict = q.judge(right(100), after, goal(50.0))
    assert not verdict.within
    assert verdict.value is None
    with pytest.raises(UserError):
        q.judge(after, right(100), goal(50.0))


def test_other_examples_are_a_failure():
    assert not q.judge(right(100), right(101), goal(50.0)).within


# ---------------------------------------------------------------- one number only


def test_scalar_needs_evidence_from_predict():
    before = Scalar(value=0.95, metric="accuracy")
    assert q.judge_scalar(before, 0.95, goal(1.0), 0, 360).within
    assert not q.judge_scalar(before, 0.95, goal(1.0), 0, 200).within
    assert not q.judge_scalar(before, 0.95, goal(1.0), None, None).within
    assert not q.judge_scalar(before, 0.93, goal(1.0), 20, 1000).within
    assert not q.judge_scalar(before, math.nan, goal(1.0), 0, 1000).within
    assert not q.judge_scalar(before, None, goal(1.0), 0, 1000).within


def test_scalar_bound_is_the_widest_split():
    before = Scalar(value=0.95, metric="accuracy")
    verdict = q.judge_scalar(before, 0.948, goal(1.0), 10, 1000)  # 2 more losses than wins among 10
    assert verdict.high == pytest.approx(bounds.drop_upper(6, 4, 1000))
    splits = [(2, 0), (3, 1), (4, 2), (5, 3), (6, 4)]
    assert verdict.high == pytest.approx(max(bounds.drop_upper(b, c, 1000) for b, c in splits))


def test_scalar_of_unknown_range_passes_only_without_disagreement():
    before = Scalar(value=29.2, metric="perplexity", higher_is_better=False)
    assert q.judge_scalar(before, 29.2, goal(1.0, relative=True), 0, 400).within
    verdict = q.judge_scalar(before, 29.2, goal(1.0, relative=True), 3, 400)
    assert not verdict.within
    assert "one score an example" in verdict.reason


# ---------------------------------------------------------------- early stopping


def test_stops_when_lost_for_certain():
    before = right(900)
    assert stopping.certain(before, right(100, wrong=range(30)), goal(1.0)) is not None
    assert stopping.certain(before, right(100, wrong=[0]), goal(1.0)) is None
    verdict = q.judge(before, right(100, wrong=range(30)), goal(1.0))
    assert not verdict.within
    assert "stopped after 100 of 900" in verdict.reason


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_a_pass_that_would_succeed_is_not_stopped(seed):
    rng = np.random.default_rng(seed)
    before, after = right(800), np.ones(800)
    after[rng.choice(800, size=3, replace=False)] = 0.0
    whole = Scores(values=after, metric="top1")
    assert q.judge(before, whole, goal(1.5)).within
    stop = stopping.stopper(before, goal(1.5))
    assert not any(stop(whole.first(k)) for k in range(50, 800, 50))


def test_stopper_looks_eight_times_at_most(monkeypatch):
    looks = []
    monkeypatch.setattr(stopping, "certain", lambda *a: looks.append(1))
    stop = stopping.stopper(right(1000), goal())
    for k in range(1, 1000):
        stop(right(k))
    assert len(looks) <= stopping.LOOKS


def test_floor_out_of_reach_stops():
    clean = noise(np.zeros(400))
    assert stopping.certain(clean, noise(np.full(64, 0.5)), goal(floor=15.0)) is not None
    assert stopping.certain(clean, noise(np.full(64, 0.01)), goal(floor=15.0)) is None
