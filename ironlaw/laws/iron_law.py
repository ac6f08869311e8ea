"""The iron law of a machine-learning workload, and the iron law of processors that it is named after.

Why both forms: whether memory and arithmetic overlap is a property of the kernel, so the true time
lies between the two, and they differ by at most a factor of two in the part that can overlap. It
refuses to take an efficiency above 1: then a ceiling was measured wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.laws.checks import fraction, nonnegative, positive
from ironlaw.laws.law import Input, Law, above_zero, at_least

REDDI = "Janapa Reddi, Machine Learning Systems (mlsysbook.ai), the iron law of ML systems"
EMER = "Emer and Clark, A Characterization of Processor Performance in the VAX-11/780, ISCA 1984"


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """Seconds of each term of the law."""

    memory_s: float
    compute_s: float
    latency_s: float

    @property
    def serial_s(self) -> float:
        return self.memory_s + self.compute_s + self.latency_s

    @property
    def overlapped_s(self) -> float:
        return max(self.memory_s, self.compute_s) + self.latency_s


def terms(
    *,
    traffic_bytes: float,
    bandwidth_bytes_per_s: float,
    flops: float,
    peak_flops_per_s: float,
    efficiency: float = 1.0,
    latency_s: float = 0.0,
) -> Terms:
    """Seconds of memory ``D/BW``, compute ``O/(R * efficiency)`` and latency ``L``. Efficiency in (0, 1]."""
    nonnegative(traffic_bytes=traffic_bytes, flops=flops, latency_s=latency_s)
    positive(bandwidth_bytes_per_s=bandwidth_bytes_per_s, peak_flops_per_s=peak_flops_per_s, efficiency=efficiency)
    fraction(efficiency=efficiency)
    return Terms(
        memory_s=traffic_bytes / bandwidth_bytes_per_s,
        compute_s=flops / (peak_flops_per_s * efficiency),
        latency_s=latency_s,
    )


def serial_s(
    *,
    traffic_bytes: float,
    bandwidth_bytes_per_s: float,
    flops: float,
    peak_flops_per_s: float,
    efficiency: float = 1.0,
    latency_s: float = 0.0,
) -> float:
    """``D/BW + O/(R * efficiency) + L``: nothing overlaps; an upper bound when some of it does."""
    found = terms(
        traffic_bytes=traffic_bytes,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        flops=flops,
        peak_flops_per_s=peak_flops_per_s,
        efficiency=efficiency,
        latency_s=latency_s,
    )
    return found.serial_s


def overlapped_s(
    *,
    traffic_bytes: float,
    bandwidth_bytes_per_s: float,
    flops: float,
    peak_flops_per_s: float,
    efficiency: float = 1.0,
    latency_s: float = 0.0,
) -> float:
    """``max(D/BW, O/(R * efficiency)) + L``: memory and arithmetic overlap fully; else a lower bound."""
    found = terms(
        traffic_bytes=traffic_bytes,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        flops=flops,
        peak_flops_per_s=peak_flops_per_s,
        efficiency=efficiency,
        latency_s=latency_s,
    )
    return found.overlapped_s


def processor_s(*, instructions: float, cycles_per_instruction: float, clock_hz: float) -> float:
    """The iron law of processors: ``instructions * CPI / clock``. CPI holds only for the mix it was measured on."""
    nonnegative(instructions=instructions)
    positive(cycles_per_instruction=cycles_per_instruction, clock_hz=clock_hz)
    return instructions * cycles_per_instruction / clock_hz


_INPUTS = (
    at_least(0, "traffic_bytes", "B", "bytes that cross memory (D)"),
    above_zero("bandwidth_bytes_per_s", "B/s", "memory bandwidth (BW)"),
    at_least(0, "flops", "FLOP", "operations (O)"),
    above_zero("peak_flops_per_s", "FLOP/s", "peak arithmetic rate (R)"),
    Input(
        name="efficiency",
        unit="1",
        meaning="share of the peak that the kernels reach",
        low=0,
        high=1,
        above=True,
        default=1.0,
    ),
    at_least(0, "latency_s", "s", "fixed cost: dispatch, launch, synchronisation (L)", default=0.0),
)
_EXAMPLE = (
    ("traffic_bytes", 1e9),
    ("bandwidth_bytes_per_s", 25e9),
    ("flops", 2e9),
    ("peak_flops_per_s", 100e9),
    ("efficiency", 0.5),
    ("latency_s", 0.001),
)

LAWS = (
    Law(
        name="iron-law-serial",
        family="iron law",
        title="Time of a run when nothing overlaps",
        equation="D/BW + O/(R * efficiency) + L",
        inputs=_INPUTS,
        unit="s",
        valid_while="data movement, arithmetic and overhead follow one another; an upper bound when they overlap",
        source=REDDI,
        function=serial_s,
        example=_EXAMPLE,
    ),
    Law(
        name="iron-law-overlapped",
        family="iron law",
        title="Time of a run when memory and arithmetic overlap",
        equation="max(D/BW, O/(R * efficiency)) + L",
        inputs=_INPUTS,
        unit="s",
        valid_while="memory and arithmetic overlap fully; a lower bound when they do not",
        source=REDDI,
        function=overlapped_s,
        example=_EXAMPLE,
    ),
    Law(
        name="iron-law-processor",
        family="iron law",
        title="Time of a program on a processor",
        equation="instructions * CPI / clock",
        inputs=(
            at_least(0, "instructions", "1", "instructions executed"),
            above_zero("cycles_per_instruction", "cycles", "mean cycles per instruction"),
            above_zero("clock_hz", "Hz", "clock rate"),
        ),
        unit="s",
        valid_while="the CPI was measured on this instruction mix, on this machine",
        source=EMER,
        function=processor_s,
        example=(("instructions", 1e9), ("cycles_per_instruction", 1.5), ("clock_hz", 3e9)),
    ),
)
