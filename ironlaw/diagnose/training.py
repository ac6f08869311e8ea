"""Terms of a training step: input first, then forward, backward and optimiser as one run of operators, then the rest.

The step was split by the clock (:class:`~ironlaw.records.training.StepTimes`); what the model does in it is diagnosed
as any call is. Terms sum to the step. Each part has its Amdahl cap; that of loading is not reasoned but measured, on
batches that were already in memory, and the same measurement confirms or refutes the input term. On a device that
works on its own operators are not timed here, so that its part is residual, and says so.
"""

from __future__ import annotations

import dataclasses

from ironlaw.diagnose.bounds import MOST, WORTH
from ironlaw.diagnose.confirming import agrees, confirmed
from ironlaw.diagnose.killers import Facts
from ironlaw.diagnose.killers import findings as killers
from ironlaw.diagnose.killers.facts import NOTABLE
from ironlaw.diagnose.loading import loading_findings
from ironlaw.diagnose.verdict import diagnose, verdict
from ironlaw.records import (
    Bound,
    Diagnosis,
    Energy,
    Execution,
    Finding,
    Interval,
    Ledger,
    Machine,
    Measurement,
    Percentiles,
    Perturbation,
    Term,
    TermTime,
)
from ironlaw.records.training import Loader, StepTimes

CACHED_INPUT = "cached input"
TRAINS = frozenset({
    "bf16", "fp16", "more threads", "graph runtime or compiler", "allocator settings", "channels-last", "batching",
    "unlimited FLOP/s", "unlimited bandwidth",
})  # fmt: skip
"""Classes of change that a training step can use as it is; the others change what is trained."""


def diagnose_step(
    ledger: Ledger, times: StepTimes, loader: Loader, machine: Machine, execution: Execution
) -> Diagnosis:
    """Terms that sum to ``times.total`` (``ledger`` as given by ``merge``, of forward, backward and optimiser)."""
    total_s = times.total.value
    on_host = times.device == "cpu"
    call = call_of(times, execution)
    work = diagnose(ledger, call, machine, execution)
    inner = work.terms if on_host else (_unexplained(times),)
    rest = dataclasses.replace(times.rest, high=min(total_s, times.rest.high))
    serial = TermTime(term=Term.SERIAL, seconds=rest, evidence="the loop between the parts of a step")
    known = [one for one in inner if one.term is not Term.RESIDUAL]
    left = [one for one in inner if one.term is Term.RESIDUAL]
    terms = (_input(times, loader), *known, serial, *left)
    dominant, why = verdict(terms, total_s)
    if not times.gain.settled:
        why += f"; unsettled: {times.launches} launches, others took {times.foreign_cpu:.0%} of these CPUs meanwhile"
    found = dataclasses.replace(
        work,
        total_s=total_s,
        terms=terms,
        dominant=dominant,
        why=why,
        bounds=_bounds(times, work if on_host else None),
        findings=(
            *loading_findings(times, loader, cores=len(execution.cpus), threads=execution.threads),
            *(_killers(times, work, call, machine, execution) if on_host else ()),
        ),
        serial_bound_s=work.serial_bound_s if on_host else None,
        overlapped_bound_s=work.overlapped_bound_s if on_host else None,
        step=times,
        loader=loader,
    )
    return confirmed(found, [_cached_input(found, times)])


def call_of(times: StepTimes, execution: Execution) -> Measurement:
    """Forward, backward and optimiser of a step as one call."""
    p50 = Percentiles(p50=times.work_s, p90=None, p99=None, mean=times.work_s, samples=times.steps, refused="of blocks")
    return Measurement(
        latency_s=p50,
        throughput_per_s=times.batch / times.total.value,
        batch=times.batch,
        launches=times.launches,
        blocks=times.blocks,
        peak_memory_bytes=0,
        size_bytes=0,
        load_s=0.0,
        prepare_s=0.0,
        warmup_calls=0,
        warm=True,
        faults_per_call=times.faults,
        system_s_per_call=times.system_s,
        cpu_s_per_call=times.cpu_s,
        threads_effective=min(float(execution.threads), times.cpu_s / times.cached.value),
        foreign_cpu=times.foreign_cpu,
        energy_j=Energy(value=None, source="unknown"),
    )


def _killers(
    times: StepTimes, work: Diagnosis, call: Measurement, machine: Machine, execution: Execution
) -> list[Finding]:
    """Those within forward, backward and optimiser, with their shares of the step."""
    facts = Facts(ledger=work.ledger, terms=work.terms, measurement=call, machine=machine, execution=execution)
    part = times.work_s / times.total.value
    found = [(one, None if one.share is None else one.share * part) for one in killers(facts)]
    return [dataclasses.replace(one, share=share) for one, share in found if share is None or share >= NOTABLE]


def _input(times: StepTimes, loader: Loader) -> TermTime:
    """Waiting, beginning epochs, copies; up to what a working loader takes from the step beside it."""
    parts = (times.wait, times.restart, times.copy)
    slowed = max(0.0, times.contention.high)
    said = [f"{_ms(times.wait.value)} of a step blocked in next()"]
    if times.restart.value > 0.0:
        said.append(f"{_ms(times.restart.value)} beginning epochs of {loader.batches} batches")
    if times.device != "cpu":
        said.append(f"{_ms(times.copy.value)} copying to {times.device}")
    if times.contention.low > 0.0:
        said.append(f"beside loading the rest of the step takes {_ms(times.contention.value)} longer")
    return TermTime(
        term=Term.IO,
        seconds=Interval(
            low=sum(part.low for part in parts),
            value=times.io_s,
            high=min(times.total.value, sum(part.high for part in parts) + slowed),
        ),
        evidence="; ".join([*said, stages_text(loader)]),
    )


def stages_text(loader: Loader) -> str:
    """The loader and its stages in words."""
    if loader.fetch_s is None:
        return f"{loader.kind}: {loader.note or 'stages not known'}"
    within = f" ({_ms(loader.transform_s)} of it transform)" if loader.transform_s else ""
    parts = [f"a batch takes {_ms(loader.fetch_s)} to fetch{within}"]
    if loader.collate_s is not None:
        parts.append(f"{_ms(loader.collate_s)} to collate")
    if loader.transfer_s is not None:
        parts.append(f"{_ms(loader.transfer_s)} to receive")
    workers = f"{loader.workers} worker{'' if loader.workers == 1 else 's'}" if loader.workers else "no workers"
    return f"{', '.join(parts)}; {workers}"


def _unexplained(times: StepTimes) -> TermTime:
    parts = (times.forward, times.backward, times.optimiser)
    return TermTime(
        term=Term.RESIDUAL,
        seconds=Interval(low=sum(p.low for p in parts), value=times.work_s, high=sum(p.high for p in parts)),
        evidence=f"forward, backward and optimiser on {times.device}: its operators are not timed",
    )


def _cached_input(diagnosis: Diagnosis, times: StepTimes) -> Perturbation:
    """What infinitely fast loading would save, measured; copies stay."""
    total, copy, gain = times.total.value, times.copy.value, times.gain
    low, value, high = (max(0.0, total * (1.0 - 1.0 / ratio)) + copy for ratio in (gain.low, gain.median, gain.high))
    saved = Interval(low=low, value=value, high=high)
    return Perturbation(
        name=CACHED_INPUT,
        term=Term.IO,
        seconds=saved,
        confirms=agrees(diagnosis, Term.IO, saved),
        evidence=(
            f"a step takes {_ms(times.cached.value)} on batches in memory: {_times(gain.median)} "
            f"[{gain.low:.2f}, {gain.high:.2f}] as fast over {gain.launches} launches"
        ),
    )


# ---------------------------------------------------------------- bounds


def _bounds(times: StepTimes, work: Diagnosis | None) -> tuple[Bound, ...]:
    """The cap of fixing each part, and those of classes of change within forward, backward and optimiser."""
    term = _largest(work) if work else Term.COMPUTE
    parts = [("free forward pass", times.forward), ("free backward pass", times.backward)]
    found = [_loading(times), *(_gone(times, *part, term) for part in (*parts, ("free optimiser", times.optimiser)))]
    if times.device != "cpu":
        found.append(_gone(times, "free copies to the device", times.copy, Term.IO))
    found += [_within(times, one) for one in (work.bounds if work else ()) if one.change in TRAINS]
    return tuple(sorted(found, key=lambda one: -one.speedup))


def _loading(times: StepTimes) -> Bound:
    """Measured, since a loader that works beside the step also slows it."""
    name, gain = "infinitely fast loading", times.gain
    speedup = min(MOST, max(1.0, gain.median))
    waited = (times.wait.value + times.restart.value) / times.total.value
    reason = (
        f"{name}: at most {_times(speedup)}, measured on cached batches [{gain.low:.2f}, {gain.high:.2f}]; "
        f"waiting is {waited:.0%} of the step"
    )
    return Bound(change=name, attacks=Term.IO, speedup=speedup, wasted=speedup < WORTH, reason=reason)


def _gone(times: StepTimes, name: str, part: Interval, term: Term) -> Bound:
    """Amdahl's law with the part taking no time."""
    total = times.total.value
    speedup = min(MOST, total / max(total - part.value, 1e-12))
    touched = f"{part.value / total:.0%} of the time ({_ms(part.value)} of {_ms(total)})"
    reason = f"{name}: at most {_times(speedup)}, since it is {touched}"
    return Bound(change=name, attacks=term, speedup=speedup, wasted=speedup < WORTH, reason=reason)


def _within(times: StepTimes, bound: Bound) -> Bound:
    """A bound on forward, backward and optimiser as one on the step."""
    total, work = times.total.value, times.work_s
    speedup = total / (total - work + work / bound.speedup)
    inner = bound.reason.removeprefix(f"{bound.change}: ")
    reason = (
        f"{bound.change}: at most {_times(speedup)} of the step, {work / total:.0%} of which is forward, backward and "
        f"optimiser; of that {inner}"
    )
    return dataclasses.replace(bound, speedup=speedup, wasted=speedup < WORTH, reason=reason)


def _largest(work: Diagnosis) -> Term:
    known = [one for one in work.terms if one.term is not Term.RESIDUAL]
    return max(known, key=lambda one: one.seconds.value).term


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
