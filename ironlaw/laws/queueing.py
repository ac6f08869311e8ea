"""Queues: what waiting does to latency under arrivals.

Why so few: a served model is a station with a service time; Little's law needs no assumption at all,
M/M/1 and M/M/c are exact for random service, ``deterministic`` for fixed service (a model at a fixed
batch), and one bound covers a server that batches whatever waits. They refuse a load of 1 or more:
such a queue has no steady state. Percentiles are given only where the distribution is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ironlaw.laws.checks import nonnegative, positive, quantile, whole
from ironlaw.laws.law import Input, Law, above_zero, at_least, count

LITTLE = "Little, A Proof for the Queuing Formula L = lambda W, Operations Research 9(3), 1961"
KLEINROCK = "Kleinrock, Queueing Systems I, 1975"
ALLEN = "Allen, Probability, Statistics, and Queueing Theory, 2nd ed. 1990 (Allen-Cunneen)"
INOUE = "Inoue, Queueing Analysis of GPU-Based Inference Servers with Dynamic Batching, 2021, arXiv:1912.06322"


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """A queue in steady state. ``wait`` is before service, ``response`` is wait and service together.

    ``waiting`` and ``present`` are mean numbers of requests; the quantiles are at the asked ``q``.
    """

    utilisation: float
    wait_s: float
    response_s: float
    waiting: float
    present: float
    wait_quantile_s: float
    response_quantile_s: float


def little(*, arrival_per_s: float, response_s: float) -> float:
    """Requests present on average, ``rate * time``. Exact for any stable system, of any order of service."""
    nonnegative(arrival_per_s=arrival_per_s, response_s=response_s)
    return arrival_per_s * response_s


def load(arrival_per_s: float, service_s: float, servers: int = 1) -> float:
    """Utilisation of each server. Raises ``ValueError`` at 1 or more: the queue would grow without end."""
    positive(arrival_per_s=arrival_per_s, service_s=service_s)
    whole(servers=servers)
    rho = arrival_per_s * service_s / servers
    if rho >= 1:
        raise ValueError(
            f"the queue is not stable: arrival_per_s {arrival_per_s:g} times service_s {service_s:g} "
            f"is a load of {rho:g} on each of {servers} server(s); it must be below 1"
        )
    return rho


def steady(
    *, arrival_per_s: float, service_s: float, servers: int, wait_s: float, wait_q_s: float, response_q_s: float
) -> Queue:
    """The other means from the mean wait, by Little's law."""
    return Queue(
        utilisation=load(arrival_per_s, service_s, servers),
        wait_s=wait_s,
        response_s=wait_s + service_s,
        waiting=arrival_per_s * wait_s,
        present=arrival_per_s * (wait_s + service_s),
        wait_quantile_s=wait_q_s,
        response_quantile_s=response_q_s,
    )


def mm1(*, arrival_per_s: float, service_s: float, q: float = 0.99) -> Queue:
    """Poisson arrivals, exponential service of mean ``service_s``, one server, first come first served."""
    rho = load(arrival_per_s, service_s)
    quantile(q=q)
    slack_per_s = 1.0 / service_s - arrival_per_s
    return steady(
        arrival_per_s=arrival_per_s,
        service_s=service_s,
        servers=1,
        wait_s=rho / slack_per_s,
        wait_q_s=max(0.0, math.log(rho / (1.0 - q)) / slack_per_s),
        response_q_s=-math.log1p(-q) / slack_per_s,
    )


def mm1_rate(*, response_s: float, service_s: float, q: float = 0.99) -> float:
    """The most arrivals a second for which the ``q`` quantile of response stays within ``response_s`` (M/M/1)."""
    positive(response_s=response_s, service_s=service_s)
    quantile(q=q)
    rate = 1.0 / service_s + math.log1p(-q) / response_s
    if rate <= 0:
        least = -math.log1p(-q) * service_s
        raise ValueError(f"response_s must be above {least:g} at q {q:g}: service alone exceeds {response_s:g}")
    return rate


def erlang_c(*, offered: float, servers: int) -> float:
    """Probability that an arrival waits in M/M/c; ``offered`` is arrivals times service, below ``servers``."""
    positive(offered=offered)
    whole(servers=servers)
    if offered >= servers:
        raise ValueError(f"offered must be below servers, got {offered:g} and {servers}")
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return blocked / (1.0 - offered / servers * (1.0 - blocked))


def mmc(*, arrival_per_s: float, service_s: float, servers: int, q: float = 0.99) -> Queue:
    """Poisson arrivals, exponential service, ``servers`` in parallel behind one queue."""
    load(arrival_per_s, service_s, servers)
    quantile(q=q)
    offered = arrival_per_s * service_s
    waits = erlang_c(offered=offered, servers=servers)
    slack_per_s = servers / service_s - arrival_per_s
    return steady(
        arrival_per_s=arrival_per_s,
        service_s=service_s,
        servers=servers,
        wait_s=waits / slack_per_s,
        wait_q_s=max(0.0, math.log(waits / (1.0 - q)) / slack_per_s),
        response_q_s=bisect(lambda t: 1.0 - _mmc_tail(t / service_s, waits, servers - offered), q, service_s),
    )


def _mmc_tail(t: float, waits: float, slack: float) -> float:
    """P(response > t), ``t`` in mean services: exponential service plus, with ``waits``, a wait of rate ``slack``."""
    gap = slack - 1.0
    both = t if abs(gap) < 1e-9 else -math.expm1(-gap * t) / gap
    return math.exp(-t) * (1.0 + waits * both)


def bisect(cdf: Callable[[float], float], q: float, scale: float) -> float:
    """The least ``t >= 0`` with ``cdf(t) >= q``, to about 1e-12 of it; ``cdf`` rises to 1."""
    low, high = 0.0, scale
    if cdf(0.0) >= q:
        return 0.0
    while cdf(high) < q:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high) or high - low < 1e-13 * high:
            break
        low, high = (low, middle) if cdf(middle) >= q else (middle, high)
    return high


def allen_cunneen_wait_s(
    *, arrival_per_s: float, service_s: float, servers: int = 1, arrival_cv: float = 1.0, service_cv: float = 1.0
) -> float:
    """Mean wait of G/G/c, approximately: that of M/M/c times ``(arrival_cv^2 + service_cv^2) / 2``.

    Exact for M/M/c and M/G/1; the error grows at low load and with bursts that are correlated.
    """
    nonnegative(arrival_cv=arrival_cv, service_cv=service_cv)
    exact = mmc(arrival_per_s=arrival_per_s, service_s=service_s, servers=servers).wait_s
    return exact * (arrival_cv**2 + service_cv**2) / 2.0


def batching_response_s(*, arrival_per_s: float, fixed_s: float, per_item_s: float) -> float:
    """Upper bound of the mean response of a server that, when idle, serves all that wait as one batch.

    A batch of ``b`` takes ``fixed_s + per_item_s * b``. Poisson arrivals, no limit on the batch; the
    bound is close at every load (within a few per cent in the paper).
    """
    positive(arrival_per_s=arrival_per_s, per_item_s=per_item_s)
    nonnegative(fixed_s=fixed_s)
    rho = load(arrival_per_s, per_item_s)
    waited = arrival_per_s * fixed_s
    light = (per_item_s + fixed_s) / (2 * (1 - rho)) * (1 + 2 * waited + (1 - waited) / (1 + rho))
    heavy = 1.5 * fixed_s / (1 - rho) + per_item_s / 2 * (rho + 2) / (1 - rho**2)
    return min(light, heavy)


def as_numbers(function: Callable[..., Queue]) -> Callable[..., dict[str, float]]:
    """The law as the catalogue calls it: the fields of the queue as a dictionary."""

    def numbers(**inputs: Any) -> dict[str, float]:
        return asdict(function(**inputs))

    return numbers


ARRIVAL = above_zero("arrival_per_s", "1/s", "arrivals a second")
SERVICE = above_zero("service_s", "s", "mean time of one service")
Q = Input(name="q", unit="1", meaning="quantile of waiting and response", low=0, high=1, below=True, default=0.99)
UNITS = "utilisation: 1; *_s: s; waiting, present: requests"
POISSON = "arrivals are Poisson and independent of the state, first come first served, load below 1"
_EXPONENTIAL = POISSON + ", service times are exponential"

LAWS = (
    Law(
        name="little",
        family="queueing",
        title="Requests present on average",
        equation="arrival rate * time in system",
        inputs=(at_least(0, "arrival_per_s", "1/s", "arrivals a second"), at_least(0, "response_s", "s", "mean time")),
        unit="requests",
        valid_while="the system is stable and both means are over the same long time",
        source=LITTLE,
        function=little,
        example=(("arrival_per_s", 200), ("response_s", 0.025)),
    ),
    Law(
        name="mm1",
        family="queueing",
        title="One server, exponential service (M/M/1)",
        equation="wait = rho / (mu - lambda); P(response > t) = exp(-(mu - lambda) t)",
        inputs=(ARRIVAL, SERVICE, Q),
        unit=UNITS,
        valid_while=_EXPONENTIAL,
        source=f"{KLEINROCK}, section 3.2 and chapter 5 (M/M/1, distribution of waiting)",
        function=as_numbers(mm1),
        example=(("arrival_per_s", 80), ("service_s", 0.01)),
    ),
    Law(
        name="mm1-rate",
        family="queueing",
        title="Most arrivals for a response quantile (M/M/1)",
        equation="mu + ln(1 - q) / t",
        inputs=(above_zero("response_s", "s", "limit on the response at quantile q"), SERVICE, Q),
        unit="1/s",
        valid_while=_EXPONENTIAL,
        source=f"{KLEINROCK}, distribution of the time in M/M/1, solved for lambda",
        function=mm1_rate,
        example=(("response_s", 0.1), ("service_s", 0.01)),
    ),
    Law(
        name="mmc",
        family="queueing",
        title="Several servers, exponential service (M/M/c)",
        equation="wait = ErlangC / (c mu - lambda); P(wait > t) = ErlangC exp(-(c mu - lambda) t)",
        inputs=(ARRIVAL, SERVICE, count("servers", "servers behind one queue"), Q),
        unit=UNITS,
        valid_while=_EXPONENTIAL,
        source=f"{KLEINROCK}, section 3.5 (Erlang C)",
        function=as_numbers(mmc),
        example=(("arrival_per_s", 320), ("service_s", 0.01), ("servers", 4)),
    ),
    Law(
        name="allen-cunneen",
        family="queueing",
        title="Mean wait with any arrivals and service (G/G/c, approximate)",
        equation="wait(M/M/c) (ca^2 + cs^2) / 2",
        inputs=(
            ARRIVAL,
            SERVICE,
            count("servers", "servers behind one queue", default=1),
            at_least(0, "arrival_cv", "1", "standard deviation over mean of times between arrivals", default=1.0),
            at_least(0, "service_cv", "1", "standard deviation over mean of service times", default=1.0),
        ),
        unit="s",
        valid_while="load is above about 0.5 and arrivals are not correlated; exact for M/M/c and M/G/1",
        source=ALLEN,
        function=allen_cunneen_wait_s,
        example=(("arrival_per_s", 80), ("service_s", 0.01), ("service_cv", 0)),
    ),
    Law(
        name="batching",
        family="queueing",
        title="Mean response when a server batches all that wait (upper bound)",
        equation="min of two closed forms in lambda, fixed and per-item time",
        inputs=(
            ARRIVAL,
            at_least(0, "fixed_s", "s", "time of a batch that does not depend on its size"),
            above_zero("per_item_s", "s", "time that each item of a batch adds"),
        ),
        unit="s",
        valid_while="arrivals are Poisson, batches are not limited in size, batch time is affine in its size",
        source=f"{INOUE}, closed-form upper bound phi = min(phi_0, phi_1)",
        function=batching_response_s,
        example=(("arrival_per_s", 500), ("fixed_s", 0.004), ("per_item_s", 0.001)),
    ),
)
