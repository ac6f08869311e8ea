"""From a gain in capacity to a gain in response time, when requests arrive at random at a rate.

A server takes what waits, up to its batch, and a call takes the same time however full it is. The mean response is
that of M/D/1 at batch 1 (exact), and for larger batches service, half a service while the server is busy, and the
queue that grows near saturation (an approximation for ordering plans; what is shown is measured).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ironlaw.records import Execution, Interval, Prediction

LATE = 20.0
"""The response of an overloaded server has no limit; it counts as so many services, to order what keeps up."""


def response_s(service_s: float, *, rate_per_s: float, batch: int, servers: int) -> float | None:
    """Mean seconds from arrival to answer; None when the servers cannot keep up."""
    arrivals = rate_per_s / servers * service_s
    load = arrivals / batch
    if load >= 1.0:
        return None
    return service_s * (1.0 + min(1.0, arrivals) / 2.0 + load**2 / (2.0 * (1.0 - load)))


def under_arrivals(
    predicted: Prediction, *, service_s: float, rate_per_s: float, execution: Execution, settings: Any
) -> Prediction:
    """The prediction in response times. ``predicted`` is of examples a second, and ``service_s`` a call of now.

    ``settings`` of levers that change the batch or the replicas hold the new number under that name.
    """
    batch, servers = getattr(settings, "batch", execution.batch), getattr(settings, "replicas", execution.replicas)
    more = batch / execution.batch * servers / execution.replicas
    now = response_s(service_s, rate_per_s=rate_per_s, batch=execution.batch, servers=execution.replicas)

    def gain(speedup: float) -> float:
        then = response_s(service_s * more / speedup, rate_per_s=rate_per_s, batch=batch, servers=servers)
        if then is None:
            return 1.0 if now is None else now / (LATE * service_s)
        return (LATE * service_s if now is None else now) / then

    one = predicted.speedup
    low, value, high = sorted(gain(x) for x in (one.low, one.value, one.high))
    said = "overloaded now" if now is None else f"{now * 1e3:.3g} ms from arrival to answer now"
    return dataclasses.replace(
        predicted,
        speedup=Interval(low=low, value=value, high=high),
        basis=f"{predicted.basis}; at {rate_per_s:g}/s {said}",
    )
