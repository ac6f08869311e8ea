"""Latency under arrivals: an open schedule, no request forgotten, and predictions that agree with queueing theory."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from ironlaw.laws.deterministic import md1
from ironlaw.measure.paired import FULL, LONGEST_BLOCK_S, REQUESTS
from ironlaw.plan.arrivals import LATE, response_s, under_arrivals
from ironlaw.records import Execution, Interval, Prediction
from ironlaw.worker import arrival_times, served

MS = 1_000_000


def busy(seconds: float) -> Callable[[], object]:
    def call() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    return call


def test_arrivals_are_a_poisson_process_that_can_be_repeated() -> None:
    times = arrival_times(200.0, 50.0, seed=3)
    assert times == arrival_times(200.0, 50.0, seed=3) != arrival_times(200.0, 50.0, seed=4)
    assert 9_500 < len(times) < 10_500
    gaps = np.diff(times) / 1e9
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.05)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.05)
    assert arrival_times(0.001, 0.001, seed=1)


def test_a_slow_answer_delays_those_behind_it() -> None:
    """Three requests at once on a server that takes 2 ms: the last one waits for two calls."""
    answers, services = served(busy(0.002), [0, 0, 0], batch=1, give_up_s=10.0)
    assert len(services) == 3
    first, second, third = answers
    assert first >= 2 * MS
    assert second >= first + 2 * MS
    assert third >= second + 2 * MS


def test_a_batch_takes_what_waits_and_not_what_comes_later() -> None:
    answers, services = served(busy(0.002), [0, 0, 0, 40 * MS], batch=2, give_up_s=10.0)
    assert len(services) == 3
    assert len(answers) == 4
    assert answers[0] == answers[1]
    assert answers[3] < answers[2] + 30 * MS


def test_an_overloaded_server_gives_up_and_forgets_nobody() -> None:
    times = [i * MS // 10 for i in range(400)]
    answers, services = served(busy(0.005), times, batch=1, give_up_s=0.05)
    assert len(answers) == len(times)
    assert 2 <= len(services) <= 12
    assert answers[len(services)] >= 40 * MS


@pytest.mark.parametrize("load", [0.05, 0.5, 0.9])
def test_at_batch_1_it_is_md1(load: float) -> None:
    service = 0.004
    exact = md1(arrival_per_s=load / service, service_s=service).response_s
    assert response_s(service, rate_per_s=load / service, batch=1, servers=1) == pytest.approx(exact, rel=1e-9)


def test_more_servers_or_a_batch_keep_up_with_what_one_cannot() -> None:
    assert response_s(0.01, rate_per_s=150, batch=1, servers=1) is None
    assert response_s(0.01, rate_per_s=150, batch=1, servers=2) == pytest.approx(0.01 * (1 + 0.375 + 0.5625 / 0.5))
    batched = response_s(0.02, rate_per_s=150, batch=8, servers=1)
    assert batched is not None
    assert 0.03 < batched < 0.04


def predicted(low: float, value: float, high: float) -> Prediction:
    return Prediction(speedup=Interval(low=low, value=value, high=high), basis="test")


def test_near_saturation_a_small_gain_in_service_is_a_large_one_in_response() -> None:
    found = under_arrivals(
        predicted(1.05, 1.2, 1.4), service_s=0.0095, rate_per_s=100, execution=Execution(), settings=object()
    )
    assert 1.2 < found.speedup.low < found.speedup.value < found.speedup.high
    assert found.speedup.value > 3
    calm = under_arrivals(
        predicted(1.05, 1.2, 1.4), service_s=0.0095, rate_per_s=1, execution=Execution(), settings=object()
    )
    assert calm.speedup.value == pytest.approx(1.2, rel=0.01)


def test_what_is_overloaded_now_gains_by_keeping_up() -> None:
    found = under_arrivals(
        predicted(0.9, 2.0, 3.0), service_s=0.015, rate_per_s=100, execution=Execution(), settings=object()
    )
    assert found.speedup.low == 1.0
    assert found.speedup.high == pytest.approx(LATE * 3.0 / 1.5)  # at half load a response is 1.5 services
    assert "overloaded now" in found.basis


def test_blocks_are_long_enough_for_their_requests() -> None:
    assert FULL.at_rate(None) == FULL
    assert FULL.at_rate(200.0).block_s == pytest.approx(REQUESTS / 200.0)
    assert FULL.at_rate(1.0).block_s == LONGEST_BLOCK_S
    assert FULL.at_rate(1e6).block_s == FULL.block_s
    assert FULL.at_rate(200.0).for_call(0.001, 4).cycles == FULL.for_call(0.001, 4).cycles
