"""The roofline: how fast a program can run, from its intensity and two ceilings.

Why an interval of intensity: bytes are only known between what must cross memory and what every
operator asks for, so a verdict is given only when the whole interval lies on one side of the ridge.
It refuses to guess in between, and knows nothing of latency: see ``iron_law`` for that.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model
for Multicore Architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

from ironlaw.laws.checks import nonnegative, positive
from ironlaw.laws.law import Law, above_zero, at_least

WILLIAMS = "Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009"
YANG = "Yang, Kurth, Williams, Hierarchical Roofline Analysis for GPUs, CCPE 32(20), 2020"


def attainable_flops_per_s(
    *, intensity_flop_per_byte: float, peak_flops_per_s: float, bandwidth_bytes_per_s: float
) -> float:
    """The most FLOP/s that a program of this intensity can reach: ``min(peak, intensity * bandwidth)``.

    Holds while arithmetic and memory traffic overlap fully and both ceilings are those of the kernel's
    own dtype and threads; latency-bound programs lie below it.
    """
    nonnegative(intensity_flop_per_byte=intensity_flop_per_byte)
    positive(peak_flops_per_s=peak_flops_per_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    return min(peak_flops_per_s, intensity_flop_per_byte * bandwidth_bytes_per_s)


def ridge_flop_per_byte(*, peak_flops_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """The intensity from which a program can be compute-bound: ``peak / bandwidth``."""
    positive(peak_flops_per_s=peak_flops_per_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    return peak_flops_per_s / bandwidth_bytes_per_s


def time_s(*, flops: float, traffic_bytes: float, peak_flops_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """The least time of a program: ``max(flops / peak, bytes / bandwidth)``. Same validity as the roofline."""
    nonnegative(flops=flops, traffic_bytes=traffic_bytes)
    positive(peak_flops_per_s=peak_flops_per_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    return max(flops / peak_flops_per_s, traffic_bytes / bandwidth_bytes_per_s)


def hierarchical_flops_per_s(
    *, flops: float, traffic_bytes: Sequence[float], bandwidths_bytes_per_s: Sequence[float], peak_flops_per_s: float
) -> float:
    """The most FLOP/s under a bandwidth per memory level: ``min(peak, min_i(flops / bytes_i * BW_i))``.

    ``traffic_bytes[i]`` crosses level ``i``, whose ceiling is ``bandwidths_bytes_per_s[i]``; a level
    without traffic does not bound. Holds while the levels work at the same time.
    """
    positive(flops=flops, peak_flops_per_s=peak_flops_per_s)
    if not traffic_bytes or len(traffic_bytes) != len(bandwidths_bytes_per_s):
        raise ValueError(
            "traffic_bytes and bandwidths_bytes_per_s must name the same levels, "
            f"got {len(traffic_bytes)} and {len(bandwidths_bytes_per_s)}"
        )
    bound = peak_flops_per_s
    for moved, bandwidth in zip(traffic_bytes, bandwidths_bytes_per_s, strict=True):
        nonnegative(traffic_bytes=moved)
        positive(bandwidths_bytes_per_s=bandwidth)
        if moved > 0:
            bound = min(bound, flops / moved * bandwidth)
    return bound


def bound_by(*, intensity_low: float, intensity_high: float, ridge_low: float, ridge_high: float) -> str:
    """``memory``, ``compute``, or ``undetermined`` when the intervals of intensity and ridge (FLOP/byte) overlap."""
    nonnegative(intensity_low=intensity_low, intensity_high=intensity_high)
    positive(ridge_low=ridge_low, ridge_high=ridge_high)
    for name, low, high in (("intensity", intensity_low, intensity_high), ("ridge", ridge_low, ridge_high)):
        if low > high:
            raise ValueError(f"{name}_low must not exceed {name}_high, got {low:g} and {high:g}")
    if intensity_high < ridge_low:
        return "memory"
    if intensity_low > ridge_high:
        return "compute"
    return "undetermined"


_PEAK = above_zero("peak_flops_per_s", "FLOP/s", "peak arithmetic rate in the dtype used")
_BANDWIDTH = above_zero("bandwidth_bytes_per_s", "B/s", "memory bandwidth")
_OVERLAP = "arithmetic and memory traffic overlap fully, and neither latency nor dispatch matters"

LAWS = (
    Law(
        name="roofline",
        family="roofline",
        title="Attainable rate under the roofline",
        equation="min(peak, intensity * bandwidth)",
        inputs=(
            at_least(0, "intensity_flop_per_byte", "FLOP/B", "operations per byte that crosses memory"),
            _PEAK,
            _BANDWIDTH,
        ),
        unit="FLOP/s",
        valid_while=_OVERLAP,
        source=f"{WILLIAMS}, the formula for attainable GFlops/s",
        function=attainable_flops_per_s,
        example=(
            ("intensity_flop_per_byte", 2.0),
            ("peak_flops_per_s", 17.6e9),
            ("bandwidth_bytes_per_s", 15e9),
        ),
    ),
    Law(
        name="ridge",
        family="roofline",
        title="Ridge point: the intensity that can reach the peak",
        equation="peak / bandwidth",
        inputs=(_PEAK, _BANDWIDTH),
        unit="FLOP/B",
        valid_while=_OVERLAP,
        source=f"{WILLIAMS}, ridge point",
        function=ridge_flop_per_byte,
        example=(("peak_flops_per_s", 312e12), ("bandwidth_bytes_per_s", 2.039e12)),
    ),
    Law(
        name="roofline-time",
        family="roofline",
        title="Least time of a program under the roofline",
        equation="max(flops / peak, bytes / bandwidth)",
        inputs=(
            at_least(0, "flops", "FLOP", "operations"),
            at_least(0, "traffic_bytes", "B", "bytes that cross memory"),
            _PEAK,
            _BANDWIDTH,
        ),
        unit="s",
        valid_while=_OVERLAP,
        source=WILLIAMS,
        function=time_s,
        example=(
            ("flops", 2e12),
            ("traffic_bytes", 2e9),
            ("peak_flops_per_s", 312e12),
            ("bandwidth_bytes_per_s", 2.039e12),
        ),
    ),
    Law(
        name="roofline-levels",
        family="roofline",
        title="Attainable rate with a bandwidth per memory level",
        equation="min(peak, min_i(flops / bytes_i * bandwidth_i))",
        inputs=(
            above_zero("flops", "FLOP", "operations"),
            at_least(0, "traffic_bytes", "B", "bytes that cross each level", many=True),
            above_zero("bandwidths_bytes_per_s", "B/s", "bandwidth of each level, in the same order", many=True),
            _PEAK,
        ),
        unit="FLOP/s",
        valid_while="all levels work at the same time, and arithmetic overlaps with them",
        source=YANG,
        function=hierarchical_flops_per_s,
        example=(
            ("flops", 1e9),
            ("traffic_bytes", [4e8, 1e8]),
            ("bandwidths_bytes_per_s", [94e9, 26e9]),
            ("peak_flops_per_s", 100e9),
        ),
    ),
)
