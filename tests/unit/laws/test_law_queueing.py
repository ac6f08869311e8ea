"""Queues against a discrete-event simulation, closed forms against each other, and published values."""

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.laws import deterministic, queueing

loads = st.floats(0.05, 0.95)


def simulate(arrival_per_s, servers, service, requests, seed):
    """First come first served: a heap of the moments at which servers become free. Waits in order of arrival."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / arrival_per_s, requests))
    services = service(rng, requests)
    free = [0.0] * servers
    waits = np.empty(requests)
    for i in range(requests):
        begin = max(arrivals[i], heapq.heappop(free))
        waits[i] = begin - arrivals[i]
        heapq.heappush(free, begin + services[i])
    return waits[requests // 10 :], (waits + services)[requests // 10 :]


def exponential(rng, count):
    return rng.exponential(1.0, count)


def constant(_rng, count):
    return np.ones(count)


@pytest.mark.parametrize(
    ("law", "service", "load", "servers"),
    [
        (queueing.mmc, exponential, 0.6, 1),
        (queueing.mmc, exponential, 0.7, 4),
        (deterministic.mdc, constant, 0.7, 1),
        (deterministic.mdc, constant, 0.8, 4),
        (deterministic.mdc, constant, 0.6, 7),
    ],
)
def test_against_a_simulation(law, service, load, servers):
    """Six independent runs of 40,000: the mean wait and the shares below three quantiles within their own spread."""
    rate = load * servers
    runs = [simulate(rate, servers, service, 40_000, seed) for seed in range(6)]
    means = [waits.mean() for waits, _ in runs]
    found = law(arrival_per_s=rate, service_s=1.0, servers=servers)
    assert found.wait_s == pytest.approx(np.mean(means), abs=3.5 * np.std(means, ddof=1) / math.sqrt(6))
    assert found.utilisation == pytest.approx(load)
    for q in (0.9, 0.95, 0.99):
        found = law(arrival_per_s=rate, service_s=1.0, servers=servers, q=q)
        for bound, samples in ((found.wait_quantile_s, 0), (found.response_quantile_s, 1)):
            below = [np.mean(run[samples] <= bound + 1e-9) for run in runs]
            assert q == pytest.approx(np.mean(below), abs=4 * np.std(below, ddof=1) / math.sqrt(6) + 5e-4)


@given(rho=loads, service=st.floats(1e-4, 10), q=st.floats(0, 0.9999))
def test_one_server_two_ways(rho, service, q):
    rate = rho / service
    one = queueing.mm1(arrival_per_s=rate, service_s=service, q=q)
    many = queueing.mmc(arrival_per_s=rate, service_s=service, servers=1, q=q)
    for name in one.__slots__:
        assert getattr(many, name) == pytest.approx(getattr(one, name), rel=1e-6, abs=1e-9 * service), name
    assert one.present == pytest.approx(queueing.little(arrival_per_s=rate, response_s=one.response_s))
    assert one.present - one.waiting == pytest.approx(rho)


@given(rho=loads, service=st.floats(1e-4, 10))
def test_constant_service_halves_the_wait(rho, service):
    rate = rho / service
    fixed = deterministic.md1(arrival_per_s=rate, service_s=service)
    assert fixed.wait_s == pytest.approx(deterministic.md1_wait_s(arrival_per_s=rate, service_s=service), rel=1e-9)
    assert fixed.wait_s == pytest.approx(queueing.mm1(arrival_per_s=rate, service_s=service).wait_s / 2, rel=1e-9)
    approximate = queueing.allen_cunneen_wait_s(arrival_per_s=rate, service_s=service, service_cv=0)
    assert approximate == pytest.approx(fixed.wait_s, rel=1e-9)


@given(rho=st.floats(0.1, 0.9), wait=st.floats(0, 8))
def test_md1_distribution_is_erlangs(rho, wait):
    """Erlang 1909: P(W <= t) = (1-rho) sum_k (-rho (t-k))^k / k! e^{rho (t-k)}, in units of the service."""
    below = (1 - rho) * sum(
        (-rho * (wait - k)) ** k / math.factorial(k) * math.exp(rho * (wait - k)) for k in range(int(wait) + 1)
    )
    if not 1 - rho + 1e-6 < below < 0.999:
        return
    found = deterministic.md1(arrival_per_s=rho, service_s=1.0, q=below)
    assert found.wait_quantile_s == pytest.approx(wait, abs=1e-6)


@settings(deadline=None)
@given(rho=st.floats(0.1, 0.95), servers=st.integers(1, 40), q=st.floats(0.01, 0.999))
def test_many_servers_keep_their_order(rho, servers, q):
    rate = rho * servers
    fixed = deterministic.mdc(arrival_per_s=rate, service_s=1.0, servers=servers, q=q)
    random = queueing.mmc(arrival_per_s=rate, service_s=1.0, servers=servers, q=q)
    assert fixed.wait_s <= random.wait_s + 1e-12
    assert fixed.wait_s >= 0.499 * random.wait_s - 1e-12  # constant service never does better than half
    assert fixed.wait_quantile_s <= random.wait_quantile_s + 1e-6
    pooled = deterministic.mdc(arrival_per_s=2 * rate, service_s=1.0, servers=2 * servers, q=q)
    assert pooled.wait_s <= fixed.wait_s + 1e-12


def test_states_are_a_distribution_with_the_right_balance():
    """The chain over one service: p_j = sum_{i<=c} p_i Pois(j) + sum_{i>c} p_i Pois(j - i + c)."""
    offered, servers = 3.2, 4
    p = deterministic._states(offered, servers, deterministic._zeros(offered, servers))
    assert p.sum() == pytest.approx(1, abs=1e-12)
    poisson = [math.exp(-offered) * offered**k / math.factorial(k) for k in range(40)]
    for j in range(30):
        flow = p[: servers + 1].sum() * poisson[j]
        flow += sum(p[i] * poisson[j - i + servers] for i in range(servers + 1, servers + j + 1))
        assert p[j] == pytest.approx(flow, abs=1e-12)


@pytest.mark.parametrize(
    ("offered", "servers", "waits"), [(0.5, 1, 0.5), (1.0, 2, 1 / 3), (2.0, 3, 0.4444), (8.0, 10, 0.4092)]
)
def test_erlang_c_values(offered, servers, waits):
    assert queueing.erlang_c(offered=offered, servers=servers) == pytest.approx(waits, abs=5e-5)
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    assert queueing.erlang_c(offered=offered, servers=servers) == pytest.approx(last / (sum(terms) + last))


def test_erlang_c_of_a_thousand_servers_is_finite():
    assert 0 < queueing.erlang_c(offered=990.0, servers=1000) < 1


@given(service=st.floats(1e-3, 1), q=st.floats(0.5, 0.999), spare=st.floats(1.01, 50))
def test_rate_for_a_limit_meets_the_limit(service, q, spare):
    limit = -math.log1p(-q) * service * spare
    rate = queueing.mm1_rate(response_s=limit, service_s=service, q=q)
    assert queueing.mm1(arrival_per_s=rate, service_s=service, q=q).response_quantile_s == pytest.approx(limit)


@pytest.mark.parametrize(
    ("rate", "fixed", "item"), [(0.3, 1.0, 0.5), (1.0, 1.0, 0.5), (1.5, 1.0, 0.5), (3.0, 5.0, 0.1)]
)
def test_batching_bound_against_a_simulation(rate, fixed, item):
    runs = [_batching(rate, fixed, item, 30_000, seed) for seed in range(5)]
    bound = queueing.batching_response_s(arrival_per_s=rate, fixed_s=fixed, per_item_s=item)
    slack = 3.5 * np.std(runs, ddof=1) / math.sqrt(5)
    assert np.mean(runs) - slack <= bound <= np.mean(runs) * 1.06 + slack


def _batching(rate, fixed, item, requests, seed):
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, requests))
    first, now, total = 0, 0.0, 0.0
    while first < requests:
        now = max(now, arrivals[first])
        last = int(np.searchsorted(arrivals, now, side="right"))
        now += fixed + item * (last - first)
        total += float(np.sum(now - arrivals[first:last]))
        first = last
    return total / requests


def test_batching_without_company_is_one_service():
    alone = queueing.batching_response_s(arrival_per_s=1e-9, fixed_s=4.0, per_item_s=1.0)
    assert alone == pytest.approx(5.0, rel=1e-6)


def test_variability_scales_the_wait():
    base = queueing.mmc(arrival_per_s=2.4, service_s=1.0, servers=3).wait_s
    found = queueing.allen_cunneen_wait_s(arrival_per_s=2.4, service_s=1.0, servers=3, arrival_cv=2, service_cv=1)
    assert found == pytest.approx(2.5 * base)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: queueing.mm1(arrival_per_s=10, service_s=0.1), "not stable.* load of 1 on each of 1"),
        (lambda: deterministic.mdc(arrival_per_s=9, service_s=1, servers=8), "not stable.* load of 1.125"),
        (lambda: queueing.mmc(arrival_per_s=1, service_s=1, servers=0), "servers must be a whole number"),
        (lambda: queueing.mm1(arrival_per_s=1, service_s=0.1, q=1), r"q must lie in \[0, 1\)"),
        (lambda: queueing.erlang_c(offered=3, servers=3), "offered must be below servers"),
        (lambda: queueing.mm1_rate(response_s=0.1, service_s=0.1), "response_s must be above 0.46"),
        (lambda: queueing.batching_response_s(arrival_per_s=2, fixed_s=0, per_item_s=0.5), "not stable"),
        (lambda: deterministic.md1(arrival_per_s=0.5, service_s=1, q=1 - 1e-12), "q must be at most"),
        (lambda: deterministic.md1(arrival_per_s=1 - 1e-6, service_s=1), "too close to 1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
