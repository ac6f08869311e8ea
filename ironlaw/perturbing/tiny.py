"""Tiny tensors at equal dispatches: the same graph on the smallest input that it accepts.

What is left of a call is its floor: every dispatch, guard and Python line is still there, the work on activations is
not. Weights keep their size, so the work that the smallest input still asks for is taken off by calibrated rates, as an
interval. Sizes are tried on the counting pass, in a process of its own; one is accepted only when it dispatches as many
operators. It refuses models of fixed shapes at batch 1: there is nothing to shrink.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ironlaw.bench import Bench, Subject
from ironlaw.forms import files
from ironlaw.measure.process import Child, WorkerFailure
from ironlaw.perturbing.case import Case, milliseconds, settled, silent
from ironlaw.perturbing.fits import over_launches
from ironlaw.perturbing.work import work_s
from ironlaw.records import (
    Candidate,
    Form,
    Interval,
    Ledger,
    Outcome,
    Perturbation,
    Snapshot,
    TensorSpec,
    Term,
    from_data,
    to_data,
)

NAME = "tiny"
FACT = "smallest input"

Lengths = dict[int, int]
"""From the length of an axis to the one that takes its place, in all inputs alike."""


def run(case: Case) -> tuple[Perturbation, ...]:
    """The floor of a call, against the latency term."""
    candidate = case.subject.candidate
    assert candidate is not None
    try:
        found = _smallest(case, candidate)
    except WorkerFailure as failure:
        return silent(NAME, Term.LATENCY, f"not done: operators cannot be counted ({failure.reason})")
    if found is None:
        return silent(NAME, Term.LATENCY, "not done: the graph accepts no smaller input at equal dispatches")
    small, ledger = found
    variant = _built(case, small)
    case.measure([variant])
    if variant.failure is not None or len(variant.launches) < 2:
        reason = variant.failure.reason if variant.failure else "too few launches"
        return silent(NAME, Term.LATENCY, f"not done: the smallest input does not run ({reason})")
    whole = over_launches(case.seconds(variant))
    left = work_s(ledger, case.machine, case.diagnosis.target, case.diagnosis.threads)
    floor = Interval(low=whole.low - left.high, value=whole.value - left.value, high=whole.high - left.low)
    evidence = f"{ledger.dispatches} dispatches on {_shapes(small)} take {milliseconds(whole)}"
    if left.high > 0.01 * case.diagnosis.total_s:
        evidence += f", of which {milliseconds(left)} are work that is left"
    return (case.answer(NAME, Term.LATENCY, floor, evidence, quiet=settled(variant.launches)),)


def shrunk(snapshot: Snapshot, lengths: Lengths, folder: Path) -> Snapshot:
    """The snapshot with its example cut along every axis but the batch; its record lies in ``folder``."""
    import numpy as np

    arrays = files.example(snapshot)
    inputs = tuple(dataclasses.replace(spec, shape=_cut(spec, lengths)) for spec in snapshot.inputs)
    cut: dict[str, Any] = {}
    for spec in inputs:
        window = tuple(slice(None) if axis == 0 else slice(length) for axis, length in enumerate(spec.shape))
        cut[spec.name] = np.ascontiguousarray(arrays[spec.name][window])
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / files.EXAMPLE, **cut)
    digest = hashlib.sha256(f"{snapshot.digest} {sorted(lengths.items())}".encode()).hexdigest()
    return dataclasses.replace(snapshot, digest=digest, folder=str(folder), inputs=inputs)


def lengths_to_try(inputs: tuple[TensorSpec, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each length of an axis other than the batch, the longest first, with the shorter ones to try, smallest first."""
    known = sorted({n for spec in inputs for n in spec.shape[1:] if n > 1}, reverse=True)
    for length in known:
        yield length, tuple(1 << n for n in range(length.bit_length()) if 1 << n < length)


def _smallest(case: Case, candidate: Candidate) -> tuple[Candidate, Ledger] | None:
    """The candidate on the smallest input at equal dispatches, and its ledger; None when nothing can shrink."""
    store = case.bench.store
    known = store.fact(case.subject.key, FACT)
    if known is None:
        lengths, ledger, wanted = _searched(case, candidate)
        known = {"lengths": sorted(lengths.items()), "ledger": to_data(ledger), "wanted": wanted}
        store.keep(case.subject.key, FACT, known)
    lengths = {int(old): int(new) for old, new in known["lengths"]}
    small = _small(candidate, lengths, store.folder("work", f"tiny-{case.subject.key}"))
    ledger = from_data(Ledger, known["ledger"])
    shrinks = bool(lengths) or small.execution.batch != candidate.execution.batch
    return (small, ledger) if shrinks and ledger.dispatches == known["wanted"] else None


def _searched(case: Case, candidate: Candidate) -> tuple[Lengths, Ledger, int]:
    """Shrink one length after the other, each to the smallest that keeps the dispatches, whose number comes last."""
    work = case.bench.store.folder("work")
    with (
        Child("ironlaw.builder", memory_limit_bytes=case.bench.limits.memory_bytes) as child,
        tempfile.TemporaryDirectory(dir=work) as scratch,
    ):
        wanted = _counted(case, child, candidate).dispatches
        best: tuple[Lengths, Ledger] = {}, _counted(case, child, _small(candidate, {}, Path(scratch)))
        inputs = candidate.snapshot.inputs if candidate.model.form == Form.EAGER else ()
        for length, shorter in lengths_to_try(inputs):
            for size in shorter:
                lengths = {**best[0], length: size}
                try:
                    ledger = _counted(case, child, _small(candidate, lengths, Path(scratch)))
                except WorkerFailure as failure:
                    if failure.outcome is not Outcome.BUILD_FAILED:
                        return *best, wanted
                    continue
                if ledger.dispatches == wanted:
                    best = lengths, ledger
                    break
    return *best, wanted


def _counted(case: Case, child: Child, candidate: Candidate) -> Ledger:
    """The counting pass in a builder's process; raises WorkerFailure when the graph does not take the input."""
    answer = child.ask(
        "ledger",
        timeout_s=case.bench.limits.trial_s,
        model=to_data(candidate.model),
        snapshot=to_data(candidate.snapshot),
        batch=candidate.execution.batch,
        cache_bytes=max((cache.size_bytes for cache in case.machine.caches), default=None),
    )
    return from_data(Ledger, answer["ledger"])


def _small(candidate: Candidate, lengths: Lengths, folder: Path) -> Candidate:
    """The candidate at batch 1 (where the batch is free) and at these lengths."""
    snapshot = shrunk(candidate.snapshot, lengths, folder) if lengths else candidate.snapshot
    batch = 1 if snapshot.dynamic else candidate.execution.batch
    return dataclasses.replace(
        candidate, snapshot=snapshot, execution=dataclasses.replace(candidate.execution, batch=batch)
    )


def _built(case: Case, small: Candidate) -> Subject:
    """The small candidate as a subject: the same model file on another example."""
    own = case.bench
    bench = Bench(
        own.store, own.workload, own.evaluate, own.rebuild, small, case.subject.key, own.limits, case.talk
    )  # its baseline is the small candidate; it is measured against ours
    bench.build(bench.baseline)
    return bench.baseline


def _cut(spec: TensorSpec, lengths: Lengths) -> tuple[int, ...]:
    return (*spec.shape[:1], *(lengths.get(n, n) for n in spec.shape[1:]))


def _shapes(small: Candidate) -> str:
    specs = files.at_batch(small.snapshot.inputs, small.execution.batch)
    return ", ".join("x".join(str(n) for n in spec.shape) or "a scalar" for spec in specs)
