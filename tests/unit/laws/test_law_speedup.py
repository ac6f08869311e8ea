"""Speed-up laws against the papers' worked examples, textbook tables, and greedy schedules."""

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.laws import speedup

fractions = st.floats(0, 1)
workers = st.integers(2, 4096)


def test_amdahl_worked_examples():
    assert speedup.amdahl(p=0.95, s=100) == pytest.approx(16.8, abs=0.05)
    assert speedup.amdahl(p=0.8, s=100) == pytest.approx(4.8, abs=0.05)
    assert speedup.amdahl_limit(p=0.95) == pytest.approx(20)
    assert speedup.amdahl(p=0.4, s=10) == pytest.approx(1.56, abs=0.005)  # Hennessy and Patterson, section 1.9


@pytest.mark.parametrize(("serial", "scaled", "fixed"), [(0.01, 1014, 91), (0.02, 1004, 48), (0.04, 983, 24)])
def test_gustafson_figure_2(serial, scaled, fixed):
    """Gustafson 1988, figures 2a and 2b: 1,024 processors, serial share 1, 2, 4 %."""
    assert round(speedup.gustafson(p=1 - serial, n=1024)) == scaled
    assert round(speedup.amdahl(p=1 - serial, s=1024)) == fixed


@pytest.mark.parametrize(
    ("measured", "serial"),
    [
        ((1.82, 2.50, 3.08, 3.57, 4.00, 4.38, 4.71), (0.10,) * 7),
        ((1.87, 2.61, 3.23, 3.73, 4.14, 4.46, 4.71), (0.07, 0.075, 0.08, 0.085, 0.09, 0.095, 0.10)),
    ],
)
def test_karp_flatt_textbook_tables(measured, serial):
    """Quinn, Parallel Programming in C with MPI and OpenMP, 2003, section 7.5: serial work, then overhead."""
    found = [speedup.karp_flatt(speedup=s, n=n) for n, s in enumerate(measured, start=2)]
    assert found == pytest.approx(serial, abs=0.0015)


@given(p=fractions, n=workers)
def test_karp_flatt_undoes_amdahl(p, n):
    assert speedup.karp_flatt(speedup=speedup.amdahl(p=p, s=n), n=n) == pytest.approx(1 - p, abs=1e-9)


@given(p=fractions, n=workers)
def test_gustafson_is_amdahl_with_the_share_restated(p, n):
    """The parallel share of one worker's time is ``p n / ((1-p) + p n)`` (Shi 1996)."""
    scaled = speedup.gustafson(p=p, n=n)
    assert speedup.amdahl(p=p * n / scaled, s=n) == pytest.approx(scaled)
    assert speedup.amdahl(p=p, s=n) <= scaled + 1e-9


@given(p=st.floats(0, 0.999), s=st.floats(1, 1e9), more=st.floats(1, 1e3))
def test_amdahl_limits_and_monotonicity(p, s, more):
    gain = speedup.amdahl(p=p, s=s)
    assert 1 - 1e-12 <= gain <= min(s, speedup.amdahl_limit(p=p)) * (1 + 1e-9)
    assert gain <= speedup.amdahl(p=p, s=s * more) * (1 + 1e-12)
    assert gain <= speedup.amdahl(p=p + (1 - p) / 2, s=s) * (1 + 1e-12)
    assert speedup.amdahl(p=p, s=1e15) == pytest.approx(speedup.amdahl_limit(p=p), rel=1e-9)


@given(p=st.floats(0.01, 1), s=st.floats(1.01, 1e6))
def test_needed_share_inverts_amdahl(p, s):
    target = speedup.amdahl(p=p, s=s)
    assert speedup.needed_share(target=min(target, s), s=s) == pytest.approx(p, rel=1e-6)


@given(a=st.floats(0, 0.5), b=st.floats(0, 0.5), s=st.floats(0.5, 100))
def test_parts_with_one_speedup_are_amdahl(a, b, s):
    parts = speedup.amdahl_parts(shares=[a, b], speedups=[s, s])
    assert parts == pytest.approx(speedup.amdahl(p=a + b, s=s))


def test_parts_by_hand():
    assert speedup.amdahl_parts(shares=[0.5, 0.3], speedups=[4, 2]) == pytest.approx(1 / (0.2 + 0.125 + 0.15))
    assert speedup.amdahl_parts(shares=[], speedups=[]) == 1.0


@given(seed=st.integers(0, 10_000), n=st.integers(1, 6))
def test_greedy_schedules_keep_both_bounds(seed, n):
    rng = random.Random(seed)
    times = [rng.uniform(0.1, 3) for _ in range(rng.randint(1, 25))]
    before = [[j for j in range(i) if rng.random() < 0.15] for i in range(len(times))]
    work, span = sum(times), _span(times, before)
    taken = _greedy(times, before, n)
    bounds = {"work_s": work, "span_s": min(span, work), "n": n}
    assert speedup.work_span_lower_s(**bounds) <= taken + 1e-9
    assert taken <= speedup.brent_upper_s(**bounds) + 1e-9
    assert speedup.brent_upper_s(**{**bounds, "n": 1}) == pytest.approx(work)


def _span(times, before):
    done = []
    for i, t in enumerate(times):
        done.append(t + max((done[j] for j in before[i]), default=0))
    return max(done)


def _greedy(times, before, n):
    finished, running, started, now = set(), [], set(), 0.0
    while len(finished) < len(times):
        for i in range(len(times)):
            if i not in started and len(running) < n and all(j in finished for j in before[i]):
                heapq.heappush(running, (now + times[i], i))
                started.add(i)
        now, i = heapq.heappop(running)
        finished.add(i)
    return now


def test_parallelism_and_efficiency():
    assert speedup.parallelism(work_s=100, span_s=4) == 25
    assert speedup.efficiency(speedup=6, n=8) == 0.75


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: speedup.amdahl(p=1.1, s=2), r"p must lie in \[0, 1\], got 1.1"),
        (lambda: speedup.amdahl(p=0.5, s=0), "s must be above 0"),
        (lambda: speedup.amdahl(p=math.nan, s=2), "p must be a finite number"),
        (lambda: speedup.amdahl_limit(p=1), "p must be below 1"),
        (lambda: speedup.amdahl_parts(shares=[0.7, 0.7], speedups=[2, 2]), "sum to at most 1, got 1.4"),
        (lambda: speedup.amdahl_parts(shares=[0.7], speedups=[2, 2]), "pair up, got 1 and 2"),
        (lambda: speedup.needed_share(target=5, s=4), "target must lie between 1 and s"),
        (lambda: speedup.karp_flatt(speedup=2, n=1), "n must be above 1"),
        (lambda: speedup.gustafson(p=0.5, n=0.5), "n must be at least 1"),
        (lambda: speedup.brent_upper_s(work_s=1, span_s=2, n=1), "span_s must not exceed work_s"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
