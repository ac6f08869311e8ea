"""Ceilings of an accelerator, apart from those of the host: arithmetic, memory, launches.

Device-neutral through ``torch.accelerator`` and its events, which time the device and not the queue. The
names begin with ``device_`` so that no host prediction can take them by mistake. The probe is asked
for only where the identity lists an accelerator, and answers with a note where torch cannot use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from ironlaw.machine.gate import Found, ceiling
from ironlaw.machine.matmul import DTYPES, product
from ironlaw.records import Ceiling

SIZE = 8192
REGION_BYTES = 1 << 30
LAUNCHES = 200

Timer = Callable[[Callable[[], Any]], float]
"""Seconds that the device takes for one call."""


class DeviceProbe:
    """``device_matmul`` by dtype, ``device_memory`` (copy, both directions counted), ``device_launch``."""

    name: ClassVar[str] = "gpu"

    def measure(self, threads: int, seconds: float) -> Found:
        import torch

        if not torch.accelerator.is_available():
            return ("gpu: torch cannot use an accelerator here",)
        device = str(torch.accelerator.current_accelerator())
        with torch.inference_mode():
            return measure_device(device, event_s, seconds=seconds)


def measure_device(device: str, timer: Timer, *, seconds: float, size: int = SIZE, region: int = REGION_BYTES) -> Found:
    """Every ceiling of one device, with the clock that is given."""
    found: list[Ceiling | str] = []
    for dtype in DTYPES:
        try:
            call = product(dtype, size, device)
            samples = [2.0 * size**3 / s for s in _samples(call, timer, seconds / 6.0)]
        except (RuntimeError, NotImplementedError) as error:
            found.append(f"gpu matmul {dtype}: not offered here ({str(error).splitlines()[0]})")
            continue
        found.append(
            ceiling("device_matmul", "FLOP/s", samples, dtype=dtype, note=f"{size} x {size} x {size}, {device}")
        )
    copy = _copy(device, region)
    rates = [2.0 * region / s for s in _samples(copy, timer, seconds / 6.0)]
    found.append(ceiling("device_memory", "B/s", rates, note=f"copy of {region >> 20} MiB, {device}"))
    found.append(ceiling("device_launch", "s", _launches(device, seconds / 6.0), note=f"torch.add, {device}"))
    return tuple(found)


def event_s(call: Callable[[], Any]) -> float:
    """Seconds between two events of the current accelerator's stream around the call."""
    import torch

    start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def _samples(call: Callable[[], Any], timer: Timer, seconds: float) -> list[float]:
    for _ in range(3):
        call()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        samples.append(timer(call))
    return samples


def _copy(device: str, region: int) -> Callable[[], Any]:
    import torch

    source = torch.ones(region, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _launches(device: str, seconds: float) -> list[float]:
    """Wall seconds an operator of many in a row, the queue drained at the end: the host's cost of launching."""
    import torch

    one = torch.ones(1, device=device)
    drain = (lambda: None) if device == "cpu" else torch.accelerator.synchronize
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        drain()
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            torch.add(one, one)
        drain()
        samples.append((time.perf_counter() - start) / LAUNCHES)
    return samples
