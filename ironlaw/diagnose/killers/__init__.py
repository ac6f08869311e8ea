"""Silent killers: what costs time without an error or a warning, found in the records of one run.

Each detector is a pure function of :class:`Facts` that gives one finding or none. It speaks only with numbers
as evidence, names the lever or setting that cures it, and stays silent where records cannot tell: a kind that
nothing was recorded about is not a kind that is absent.

facts        what detectors look at
paging       page_faults
denormals    denormals
threads      oversubscription, bandwidth_knee
precision    emulated_precision, int8_slow, int8_saturation
layout       channel_width, layout_copies
dispatch     small_operators, synchronous_reads, recompilation
compression  fake_quantisation, masked_weights
fallback     fallback
"""

from __future__ import annotations

from collections.abc import Callable

from ironlaw.diagnose.killers import compression, denormals, dispatch, fallback, layout, paging, precision, threads
from ironlaw.diagnose.killers.facts import Facts
from ironlaw.records import Finding

DETECTORS: tuple[Callable[[Facts], Finding | None], ...] = (
    paging.page_faults,
    denormals.denormals,
    threads.oversubscription,
    threads.bandwidth_knee,
    precision.emulated_precision,
    precision.int8_slow,
    precision.int8_saturation,
    layout.channel_width,
    layout.layout_copies,
    dispatch.small_operators,
    dispatch.synchronous_reads,
    dispatch.recompilation,
    compression.fake_quantisation,
    compression.masked_weights,
    fallback.fallback,
)
"""Each is named like the kind that it finds."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Every killer that was seen, the largest share of the time first, those of unknown share last."""
    if not facts.total_s > 0.0:
        raise ValueError("a measurement without a positive median cannot be searched")
    found = [one for one in (detect(facts) for detect in DETECTORS) if one is not None]
    return tuple(sorted(found, key=lambda one: -1.0 if one.share is None else one.share, reverse=True))


__all__ = ["DETECTORS", "Facts", "findings"]
