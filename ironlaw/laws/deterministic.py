"""M/D/1 and M/D/c, exactly: Poisson arrivals at servers whose service always takes the same time.

Why a module: a model at a fixed shape has nearly constant service, and then M/M/c overstates waiting
by up to a factor of two. The mean comes from the zeros of the generating function; the distribution
from its inversion by FFT and a sum of positive terms only (Franx), where the classical formula of
Erlang cancels to nothing. It refuses loads so close to 1 that the inversion would not fit in memory.

With ``a = arrival * service`` and ``c`` servers, the number present has the generating function
``P(z) = -(c - a) (z - 1) prod_k (z - z_k)/(1 - z_k) / (1 - z^c e^{a(1-z)})``, where the ``z_k`` are
the zeros of the denominator inside the unit disc.
"""

from __future__ import annotations

import math

import numpy as np

from ironlaw.laws.checks import quantile
from ironlaw.laws.law import Law, count
from ironlaw.laws.queueing import ARRIVAL, POISSON, SERVICE, UNITS, Q, Queue, as_numbers, bisect, load, steady

KHINTCHINE = "Pollaczek-Khintchine; Kleinrock, Queueing Systems I, 1975, chapter 5 (mean-value formula)"
CROMMELIN = "Crommelin, Delay Probability Formulae, Post Office Electrical Engineers' Journal 26, 1934"
FRANX = "Franx, A Simple Solution for the M/D/c Waiting Time Distribution, Operations Research Letters 29(5), 2001"
MOST_STATES = 2**20
HIGHEST_QUANTILE = 1 - 1e-9


def md1_wait_s(*, arrival_per_s: float, service_s: float) -> float:
    """Mean wait of M/D/1: ``rho * service / (2 (1 - rho))``, half that of M/M/1."""
    rho = load(arrival_per_s, service_s)
    return rho * service_s / (2.0 * (1.0 - rho))


def md1(*, arrival_per_s: float, service_s: float, q: float = 0.99) -> Queue:
    """Poisson arrivals, service of exactly ``service_s``, one server."""
    return mdc(arrival_per_s=arrival_per_s, service_s=service_s, servers=1, q=q)


def mdc(*, arrival_per_s: float, service_s: float, servers: int, q: float = 0.99) -> Queue:
    """Poisson arrivals, service of exactly ``service_s``, ``servers`` behind one queue.

    Exact to about 1e-13 of a service: rarer waits come out as 0.
    """
    load(arrival_per_s, service_s, servers)
    quantile(q=q)
    offered = arrival_per_s * service_s
    zeros = _zeros(offered, servers)
    spare = servers - offered
    present = float(np.sum(1.0 / (1.0 - zeros)).real) + (servers - spare**2) / (2.0 * spare)
    wait_q_s = service_s * _wait_quantile(offered, servers, zeros, q)
    return steady(
        arrival_per_s=arrival_per_s,
        service_s=service_s,
        servers=servers,
        wait_s=max(0.0, (present - offered) / arrival_per_s),
        wait_q_s=wait_q_s,
        response_q_s=wait_q_s + service_s,
    )


def _zeros(offered: float, servers: int) -> np.ndarray:
    """The ``servers - 1`` zeros of ``z^c = e^{a(z-1)}`` inside the unit disc, by Newton per root of unity."""
    rho = offered / servers
    unit: np.ndarray = np.exp(2j * np.pi * np.arange(1, servers) / servers)
    z: np.ndarray = np.zeros_like(unit)
    for _ in range(20):
        z = unit * np.exp(rho * (z - 1.0))
    for _ in range(50):
        image = unit * np.exp(rho * (z - 1.0))
        step = (z - image) / (1.0 - rho * image)
        z = z - step
        if not step.size or np.max(np.abs(step)) < 1e-15:
            break
    return z


def _states(offered: float, servers: int, zeros: np.ndarray) -> np.ndarray:
    """Probabilities of 0, 1, 2, ... requests present, until the tail is below 1e-15."""
    size = _size(offered, servers)
    angle = 2.0 * np.pi * np.arange(1, size) / size
    shift = np.expm1(1j * angle)
    denominator = -np.expm1(1j * servers * angle - offered * shift)
    numerator = -(servers - offered) * shift
    for zero in zeros:
        numerator = numerator * ((shift + (1.0 - zero)) / (1.0 - zero))
    values = np.concatenate([[1.0 + 0j], numerator / denominator])
    states: np.ndarray = np.maximum(np.fft.fft(values).real / size, 0.0)
    return states


def _size(offered: float, servers: int) -> int:
    """A power of two beyond which fewer than 1e-15 of the states lie (the tail is geometric)."""
    rho = offered / servers
    low, high = 0.0, 1.0
    while rho * math.expm1(high) < high:
        high *= 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rho * math.expm1(middle) < middle else (low, middle)
    states = servers + offered + 10.0 * math.sqrt(offered) + 40.0 / low
    if states > MOST_STATES:
        raise ValueError(f"load {rho:g} is too close to 1 for an exact distribution; use mmc as an upper bound")
    return int(2 ** math.ceil(math.log2(2.0 * states)))


def _wait_quantile(offered: float, servers: int, zeros: np.ndarray, q: float) -> float:
    """The ``q`` quantile of waiting, in services: which service it falls in, then where within it.

    P(wait <= k) = Q[kc - 1] for whole k, with Q[i] = P(present <= c + i); for k-1 <= w < k,
    P(wait <= w) = sum_j Q[kc - j - 1] Poisson(j; a (k - w)), of which only the j near the mean matter.
    """
    if q > HIGHEST_QUANTILE:
        raise ValueError(f"q must be at most {HIGHEST_QUANTILE}: beyond it the inversion is rounding error")
    below = np.cumsum(_states(offered, servers, zeros))
    below /= below[-1]
    first_reached = int(np.searchsorted(below, q))
    k = max(1, -(-(first_reached + 1 - servers) // servers))
    j = np.arange(min(k * servers, math.ceil(offered + 12.0 * math.sqrt(offered) + 40.0)))
    at = np.minimum(servers + k * servers - j - 1, below.size - 1)
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, j.size)))])

    def cdf(since: float) -> float:
        """P(wait <= k - 1 + since)."""
        mean = offered * (1.0 - since)
        if mean <= 0.0:
            return float(below[at[0]])
        return float(np.sum(below[at] * np.exp(j * math.log(mean) - mean - log_factorials)))

    return k - 1 + bisect(cdf, q, 1.0)


LAWS = (
    Law(
        name="md1",
        family="queueing",
        title="One server, constant service (M/D/1)",
        equation="wait = rho service / (2 (1 - rho))",
        inputs=(ARRIVAL, SERVICE, Q),
        unit=UNITS,
        valid_while=POISSON + ", every service takes the same time",
        source=f"{KHINTCHINE}; quantiles: {FRANX}",
        function=as_numbers(md1),
        example=(("arrival_per_s", 80), ("service_s", 0.01)),
    ),
    Law(
        name="mdc",
        family="queueing",
        title="Several servers, constant service (M/D/c)",
        equation="L = sum_k 1/(1 - z_k) + (c - (c - a)^2) / (2 (c - a)), z_k^c = exp(a (z_k - 1))",
        inputs=(ARRIVAL, SERVICE, count("servers", "servers behind one queue"), Q),
        unit=UNITS,
        valid_while=POISSON + ", every service takes the same time",
        source=f"{CROMMELIN}; quantiles: {FRANX}",
        function=as_numbers(mdc),
        example=(("arrival_per_s", 320), ("service_s", 0.01), ("servers", 4)),
    ),
)
