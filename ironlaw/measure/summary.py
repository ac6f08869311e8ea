"""From launches to the records that are stored and shown: measurement, gain, floor."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

from ironlaw.measure.paired import Launch
from ironlaw.measure.statistics import claim_floor, gain_of, percentiles
from ironlaw.records import Artefact, Energy, Gain, Measurement, Objective

QUIET_SHARE = 0.5
"""At least this share of the pairs must be free of foreign load, else there is no verdict."""


def measurement(launches: Sequence[Launch], artefact: Artefact, modelled: Energy | None = None) -> Measurement:
    """What the launches of one artefact show together; ``modelled`` energy stands only where none was counted."""
    calls = sum(launch.calls for launch in launches)
    wall_s = sum(launch.wall_s for launch in launches)
    user_s = sum(launch.user_s for launch in launches)
    system_s = sum(launch.system_s for launch in launches)
    foreign = [f for launch in launches for f in launch.foreign]
    return Measurement(
        latency_s=percentiles([s for launch in launches for s in launch.latencies_s]),
        throughput_per_s=calls * artefact.execution.batch / wall_s,
        batch=artefact.execution.batch,
        launches=len(launches),
        blocks=len(foreign),
        peak_memory_bytes=max(launch.peak_memory_bytes for launch in launches),
        size_bytes=artefact.size_bytes,
        load_s=statistics.median(launch.load_s for launch in launches),
        prepare_s=statistics.median(launch.first_s for launch in launches),
        warmup_calls=max(launch.warmup_calls for launch in launches),
        warm=all(launch.warm for launch in launches),
        faults_per_call=sum(launch.faults for launch in launches) / calls,
        system_s_per_call=system_s / calls,
        cpu_s_per_call=(user_s + system_s) / calls,
        threads_effective=(user_s + system_s) / wall_s,
        foreign_cpu=statistics.median(foreign),
        energy_j=_counted(launches, calls) or modelled or Energy(value=None, source="unknown"),
    )


def service(launches: Sequence[Launch], artefact: Artefact) -> Measurement:
    """The same of calls alone: under arrivals latency holds waiting too, which no term of a call explains."""
    found = measurement(launches, artefact)
    calls_s = [s for launch in launches for s in launch.services_s]
    return dataclasses.replace(found, latency_s=percentiles(calls_s)) if calls_s else found


def paired_gain(launches: Sequence[Launch], objective: Objective, *, floor: float) -> Gain:
    """The paired gain in time (latency or throughput) of a candidate over the baseline."""
    quiet = [q for launch in launches for q in launch.quiet]
    settled = sum(quiet) >= QUIET_SHARE * len(quiet)
    groups = [_chosen(launch, objective, only_quiet=settled) for launch in launches]
    return gain_of([group for group in groups if group], floor=floor, settled=settled)


def floor_of(launches: Sequence[Launch], objective: Objective) -> float:
    """The smallest gain that may be claimed, from A against A."""
    return claim_floor(
        [_chosen(launch, objective, only_quiet=True) or ratios_of(launch, objective) for launch in launches]
    )


def fixed_gain(before: float, after: float) -> Gain:
    """The gain in a quantity that does not vary between launches, such as size on disk."""
    ratio = before / after
    return Gain(median=ratio, low=ratio, high=ratio, floor=1.0, settled=True, launches=1)


def _counted(launches: Sequence[Launch], calls: int) -> Energy | None:
    """Joules of one call by the counters; None when a launch was taken without them."""
    joules = [launch.energy_j for launch in launches if launch.energy_j is not None]
    return Energy(value=sum(joules) / calls, source="counter") if len(joules) == len(launches) else None


def memory_gain(launches: Sequence[Launch], baseline: Sequence[Launch], again: Sequence[Launch]) -> Gain:
    """How many times less memory: peaks of launches vary, and those of the baseline ``again`` show by how much."""
    base = statistics.median(launch.peak_memory_bytes for launch in baseline)
    ratios, itself = ([[math.log(base / one.peak_memory_bytes)] for one in group] for group in (launches, again))
    return gain_of(ratios, floor=claim_floor(itself), settled=True)


def launch_data(launch: Launch) -> dict[str, Any]:
    return dataclasses.asdict(launch)


def launch_from(data: dict[str, Any]) -> Launch:
    return Launch(**data)


def _chosen(launch: Launch, objective: Objective, *, only_quiet: bool) -> list[float]:
    ratios = ratios_of(launch, objective)
    if not only_quiet or len(ratios) != len(launch.quiet):
        return ratios
    return [ratio for ratio, quiet in zip(ratios, launch.quiet, strict=True) if quiet]


def ratios_of(launch: Launch, objective: Objective) -> list[float]:
    """Log ratios to the baseline, one a block."""
    named = {Objective.THROUGHPUT: launch.throughput_ratios, Objective.ENERGY: launch.energy_ratios}
    return named.get(objective, launch.latency_ratios)
