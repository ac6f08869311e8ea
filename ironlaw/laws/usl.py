"""The Universal Scalability Law: throughput over workers with contention and coherency.

Why a linear fit: with ``y = n / X(n)`` the law is linear in its three coefficients, so the best fit
in relative error under the law's own constraints (0 <= sigma <= 1, kappa >= 0) is found exactly, with
no starting point and no local minimum. It refuses fewer than three worker counts, and it refuses to
report a peak when nothing bends the curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ironlaw.laws.checks import fraction, nonnegative, positive
from ironlaw.laws.law import Law, above_zero, at_least, share

GUNTHER = "Gunther, Guerrilla Capacity Planning, Springer 2007, chapter 4; arXiv:0808.1431"


@dataclass(frozen=True, kw_only=True, slots=True)
class UslFit:
    """Coefficients of ``X(n) = gamma n / (1 + sigma (n-1) + kappa n (n-1))``.

    ``gamma`` is the throughput of one worker; ``residual`` the root mean square relative error of the
    fit; ``peak_workers`` where throughput is greatest, None when it never falls (kappa 0).
    """

    gamma: float
    sigma: float
    kappa: float
    residual: float
    peak_workers: float | None


def throughput(*, n: float, sigma: float, kappa: float, gamma: float = 1.0) -> float:
    """Throughput at ``n`` workers; with ``gamma`` 1 it is the speed-up. ``kappa`` 0 is Amdahl's law.

    ``sigma`` is the share that queues for something shared, ``kappa`` the cost of keeping two workers
    consistent. Holds for a fixed kind of work on workers of one kind.
    """
    fraction(sigma=sigma)
    nonnegative(kappa=kappa)
    positive(gamma=gamma, n=n)
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n:g}")
    return gamma * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))


def peak_workers(*, sigma: float, kappa: float) -> float:
    """Workers at which throughput is greatest: ``sqrt((1 - sigma) / kappa)``, at least 1; needs kappa above 0."""
    fraction(sigma=sigma)
    positive(kappa=kappa)
    return max(1.0, math.sqrt((1.0 - sigma) / kappa))


def fit(*, workers: Sequence[float], throughputs: Sequence[float]) -> UslFit:
    """The coefficients with the least squared relative error in ``n / X`` under the law's constraints.

    ``workers`` and ``throughputs`` pair up; at least three different worker counts of at least 1.
    """
    if len(workers) != len(throughputs):
        raise ValueError(f"workers and throughputs must pair up, got {len(workers)} and {len(throughputs)}")
    for n, x in zip(workers, throughputs, strict=True):
        positive(workers=n, throughputs=x)
        if n < 1:
            raise ValueError(f"workers must be at least 1, got {n:g}")
    if len(set(workers)) < 3:
        raise ValueError(f"workers must hold at least 3 different counts, got {len(set(workers))}")
    n_K = np.asarray(workers, dtype=float)
    with np.errstate(over="ignore"):
        y_K = n_K / np.asarray(throughputs, dtype=float)
    if not np.isfinite(y_K).all():
        raise ValueError(f"throughputs are too small to divide by: the least is {min(throughputs):g}")
    design_KC = np.stack([np.ones_like(n_K), n_K - 1.0, n_K * (n_K - 1.0)], axis=1) / y_K[:, None]
    a, b, c = _constrained(design_KC)
    error_K = design_KC @ np.array([a, b, c]) - 1.0
    sigma, kappa = min(1.0, b / a), c / a
    return UslFit(
        gamma=1.0 / a,
        sigma=sigma,
        kappa=kappa,
        residual=float(np.sqrt(np.mean(error_K**2))),
        peak_workers=peak_workers(sigma=sigma, kappa=kappa) if kappa > 0 else None,
    )


def _constrained(design_KC: np.ndarray) -> tuple[float, float, float]:
    """Least squares of ``design @ (a, b, c) = 1`` with 0 <= b <= a and c >= 0, by trying every active set."""
    one = np.eye(3)
    at_zero, at_one = one[:, [0]], one[:, [0]] + one[:, [1]]
    best: tuple[float, np.ndarray] | None = None
    for first in (one[:, [0, 1]], at_zero, at_one):
        for basis in (np.hstack([first, one[:, [2]]]), first):
            solved, *_ = np.linalg.lstsq(design_KC @ basis, np.ones(len(design_KC)), rcond=None)
            full = basis @ solved
            if full[0] <= 0 or full[1] < 0 or full[1] > full[0] * (1 + 1e-12) or full[2] < 0:
                continue
            loss = float(np.sum((design_KC @ full - 1.0) ** 2))
            if best is None or loss < best[0]:
                best = (loss, full)
    assert best is not None, "the set with sigma 0 and kappa 0 is always feasible"
    return float(best[1][0]), float(best[1][1]), float(best[1][2])


def _fit_numbers(*, workers: Sequence[float], throughputs: Sequence[float]) -> dict[str, float]:
    found = fit(workers=workers, throughputs=throughputs)
    numbers = {"gamma": found.gamma, "sigma": found.sigma, "kappa": found.kappa, "residual": found.residual}
    return numbers if found.peak_workers is None else {**numbers, "peak_workers": found.peak_workers}


_SIGMA = share("sigma", "contention: share of the work that queues")
_UNIFORM = "workers are of one kind and the work does not change with their number; no super-linear effects"

LAWS = (
    Law(
        name="usl",
        family="speed-up",
        title="Throughput with contention and coherency",
        equation="gamma n / (1 + sigma (n - 1) + kappa n (n - 1))",
        inputs=(
            at_least(1, "n", "1", "workers"),
            _SIGMA,
            at_least(0, "kappa", "1", "coherency: cost of keeping each pair of workers consistent"),
            above_zero("gamma", "1/s or 1", "throughput of one worker; 1 gives the speed-up", default=1.0),
        ),
        unit="that of gamma",
        valid_while=_UNIFORM,
        source=GUNTHER,
        function=throughput,
        example=(("n", 32), ("sigma", 0.02), ("kappa", 0.0005)),
    ),
    Law(
        name="usl-peak",
        family="speed-up",
        title="Workers at which throughput is greatest",
        equation="sqrt((1 - sigma) / kappa)",
        inputs=(_SIGMA, above_zero("kappa", "1", "coherency: cost of keeping each pair of workers consistent")),
        unit="1",
        valid_while=_UNIFORM,
        source=GUNTHER,
        function=peak_workers,
        example=(("sigma", 0.02), ("kappa", 0.0005)),
    ),
    Law(
        name="usl-fit",
        family="speed-up",
        title="Contention and coherency from measured throughputs",
        equation="least squares of n / X(n) = (1 + sigma (n - 1) + kappa n (n - 1)) / gamma",
        inputs=(
            at_least(1, "workers", "1", "worker counts, at least three different ones", many=True),
            above_zero("throughputs", "1/s", "throughput at each count", many=True),
        ),
        unit="gamma: 1/s; peak_workers: 1, absent when kappa is 0; the others: 1",
        valid_while=_UNIFORM + "; extrapolate no further than about twice the largest count measured",
        source=f"{GUNTHER}; fitted in relative error",
        function=_fit_numbers,
        example=(("workers", [1, 2, 4, 8, 16]), ("throughputs", [100, 196, 375, 680, 1060])),
    ),
)
