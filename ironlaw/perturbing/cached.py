"""Working set shrunk into the cache at equal work: the same examples in parts whose activations fit.

A call of many examples whose activations leave the last-level cache is compared with as many smaller calls as hold the
same examples: equal arithmetic, weights and activations warm, only the fixed costs are paid more often (and given back
by the latency term). What a call loses against its parts is the least that memory takes of it. It refuses batches that
cannot be split and working sets that fit already or never fit: shrinking single operators would change their kernels.
"""

from __future__ import annotations

from ironlaw.bench import Subject
from ironlaw.perturbing.case import Case, milliseconds, settled, silent
from ironlaw.perturbing.fits import over_launches
from ironlaw.records import Interval, Ledger, Perturbation, Term

NAME = "cached"
KEPT = 0.5
"""Of the last-level cache, what a call may need and still find warm."""


def run(case: Case) -> tuple[Perturbation, ...]:
    """What overflowing the cache costs, against the memory term: a lower bound of it."""
    candidate = case.subject.candidate
    assert candidate is not None
    ledger, batch = case.diagnosis.ledger, candidate.execution.batch
    last = max((cache.size_bytes for cache in case.machine.caches), default=0)
    if reason := _refused(ledger, batch, last, dynamic=candidate.snapshot.dynamic):
        return silent(NAME, Term.MEMORY, f"not done: {reason}")
    part = part_that_fits(ledger, batch, last)
    if part is None:
        text = f"not done: not even one example with its weights fits half of the {last >> 20} MiB cache"
        return silent(NAME, Term.MEMORY, text)
    variant = case.changed("batch", batch=part)
    case.measure([variant])
    if variant.failure is not None or len(variant.launches) < 2:
        reason = variant.failure.reason if variant.failure else "too few launches"
        return silent(NAME, Term.MEMORY, f"not done: batch {part} does not run ({reason})")
    parts = batch // part
    lost = lost_s(
        case.diagnosis.total_s,
        over_launches(case.seconds(variant)),
        parts,
        latency=case.claimed(Term.LATENCY),
        paging=case.claimed(Term.PAGING).scaled(_vanished(case, variant, parts)),
    )
    evidence = (
        f"{parts} calls of {part} examples, which fit the {last >> 20} MiB cache, take {milliseconds(lost)} less "
        f"than one of {batch} once fixed costs are equal: memory takes at least that"
    )
    at_least = Interval(low=lost.low, value=lost.value, high=case.diagnosis.total_s)
    return (case.answer(NAME, Term.MEMORY, at_least, evidence, quiet=settled(variant.launches)),)


def part_that_fits(ledger: Ledger, batch: int, cache_bytes: int) -> int | None:
    """The largest half, quarter, ... of the batch whose widest operator and weights fit half the cache."""
    part = batch
    while part > 1 and part % 2 == 0:
        part //= 2
        if _needs(ledger, part / batch) <= KEPT * cache_bytes:
            return part
    return None


def lost_s(whole_s: float, part_s: Interval, parts: int, *, latency: Interval, paging: Interval) -> Interval:
    """Seconds that one call loses against its parts, repeated fixed costs given back and vanished faults taken off."""
    again = parts - 1
    return Interval(
        low=whole_s - parts * part_s.high + again * latency.low - paging.high,
        value=whole_s - parts * part_s.value + again * latency.value - paging.value,
        high=whole_s - parts * part_s.low + again * latency.high - paging.low,
    )


def _refused(ledger: Ledger, batch: int, cache_bytes: int, *, dynamic: bool) -> str:
    if not cache_bytes:
        return "no size of a cache is known here"
    if _needs(ledger, 1.0) <= KEPT * cache_bytes:
        return f"its working set fits half of the {cache_bytes >> 20} MiB cache already"
    if not dynamic or batch < 2 or batch % 2:
        return f"a batch of {batch} cannot be split into equal parts here"
    return ""


def _needs(ledger: Ledger, grown: float) -> float:
    """Bytes of the widest operator at that share of the batch, and of all weights."""
    weights = sum(op.weights_bytes for op in ledger.ops)
    widest = max(((op.bytes_high - op.weights_bytes) / max(1, op.calls) for op in ledger.ops), default=0.0)
    return grown * widest + weights


def _vanished(case: Case, variant: Subject, parts: int) -> float:
    """The share of the page faults of one call that its parts do not have: small buffers are kept."""
    whole, part = (
        sum(x.faults for x in s.launches) / sum(x.calls for x in s.launches) for s in (case.subject, variant)
    )
    return min(1.0, max(0.0, 1.0 - parts * part / whole)) if whole > 0.0 else 0.0
