"""USL: Amdahl at kappa 0, the peak, and a fit that is exact on clean data and optimal on noisy data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from ironlaw.laws import speedup, usl

COUNTS = [1, 2, 4, 8, 16, 32]


@given(p=st.floats(0, 1), n=st.integers(1, 1000))
def test_without_coherency_it_is_amdahl(p, n):
    assert usl.throughput(n=n, sigma=1 - p, kappa=0) == pytest.approx(speedup.amdahl(p=p, s=n))


@given(sigma=st.floats(0, 0.9), kappa=st.floats(1e-6, 0.1))
def test_nothing_beats_the_peak(sigma, kappa):
    top = usl.peak_workers(sigma=sigma, kappa=kappa)
    best = usl.throughput(n=top, sigma=sigma, kappa=kappa)
    for n in (max(1, top * 0.9), top * 1.1):
        assert usl.throughput(n=n, sigma=sigma, kappa=kappa) <= best * (1 + 1e-12)


@settings(max_examples=50)
@given(sigma=st.floats(0, 1), kappa=st.floats(0, 0.05), gamma=st.floats(1e-3, 1e6))
def test_fit_recovers_clean_coefficients(sigma, kappa, gamma):
    curve = [usl.throughput(n=n, sigma=sigma, kappa=kappa, gamma=gamma) for n in COUNTS]
    found = usl.fit(workers=COUNTS, throughputs=curve)
    assert found.gamma == pytest.approx(gamma, rel=1e-6)
    assert found.sigma == pytest.approx(sigma, abs=1e-6)
    assert found.kappa == pytest.approx(kappa, abs=1e-6)
    assert found.residual < 1e-6


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_fit_is_the_constrained_optimum(seed):
    """Against scipy's bounded least squares, with b <= a expressed by a = b + d."""
    rng = np.random.default_rng(seed)
    n = np.array(COUNTS, dtype=float)
    x = n / (1 + rng.uniform(0, 1.2) * (n - 1) + rng.uniform(-0.005, 0.02) * n * (n - 1)).clip(0.2)
    x *= rng.lognormal(0, 0.3, n.size)
    found = usl.fit(workers=COUNTS, throughputs=x.tolist())
    ours = _loss(x, 1 / found.gamma, found.sigma / found.gamma, found.kappa / found.gamma)
    scale = x / n
    columns = np.stack([scale, scale * n, scale * n * (n - 1)], axis=1)
    theirs = lsq_linear(columns, np.ones(n.size), bounds=(0, np.inf), tol=1e-14)
    d, b, c = theirs.x
    assert ours <= _loss(x, d + b, b, c) * (1 + 1e-6) + 1e-12
    assert 0 <= found.sigma <= 1
    assert found.kappa >= 0
    assert found.residual == pytest.approx(np.sqrt(ours / n.size))


def _loss(x, a, b, c):
    n = np.array(COUNTS, dtype=float)
    return float(np.sum(((a + b * (n - 1) + c * n * (n - 1)) * x / n - 1) ** 2))


def test_a_curve_that_never_bends_has_no_peak():
    found = usl.fit(workers=[1, 2, 4, 8], throughputs=[10, 20, 40, 80])
    assert found.peak_workers is None
    assert (found.sigma, found.kappa) == pytest.approx((0, 0), abs=1e-12)
    super_linear = usl.fit(workers=[1, 2, 4, 8], throughputs=[10, 22, 50, 120])
    assert super_linear.sigma == 0
    assert super_linear.residual > 0.05


@pytest.mark.parametrize(
    ("counts", "rates", "message"),
    [
        ([1, 2], [1, 2], "at least 3 different counts, got 2"),
        ([1, 2, 4], [1, 2], "pair up, got 3 and 2"),
        ([1, 2, 4], [1, 2, 0], "throughputs must be above 0"),
        ([1, 2, 4], [1, 2, 1e-308], "too small to divide by"),
        ([0.5, 2, 4], [1, 2, 3], "workers must be at least 1"),
    ],
)
def test_refusals(counts, rates, message):
    with pytest.raises(ValueError, match=message):
        usl.fit(workers=counts, throughputs=rates)
