"""The whole diagnosis: terms, the dominant one or none, the two bounds of the iron law, what would work.

A verdict is given only where the intervals of the two largest terms do not overlap; otherwise it is
undetermined, and ``why`` says between which. The residual competes like any term but is never the verdict.
"""

from __future__ import annotations

from ironlaw.diagnose.bounds import Case, bounds
from ironlaw.diagnose.shares import EAGER, roofs, split
from ironlaw.diagnose.terms import bounds_of, paging_of, terms_of
from ironlaw.records import Diagnosis, Execution, Ledger, Machine, Measurement, Term, TermTime


def diagnose(ledger: Ledger, measurement: Measurement, machine: Machine, execution: Execution) -> Diagnosis:
    """Terms that sum to the measured median of one call (``ledger`` as given by ``merge``, or without times)."""
    total_s = measurement.latency_s.p50
    if not total_s > 0.0:
        raise ValueError("a measurement without a positive median cannot be diagnosed")
    target, threads = execution.target, max(1, execution.threads)
    limits = roofs(machine, ledger, threads)
    paging = paging_of(measurement, machine, execution, total_s)
    parts = split(ledger, machine, total_s=total_s, paging_s=paging.seconds.value, target=target, threads=threads)
    terms = terms_of(parts, paging, limits, total_s, eager=target == EAGER)
    dominant, why = verdict(terms, total_s)
    if limits.doubtful:
        why += f"; probed while others had the CPU, so taken widely: {', '.join(limits.doubtful)}"
    latency_s = next(one.seconds.value for one in terms if one.term is Term.LATENCY)
    serial, overlapped = bounds_of(ledger, limits, latency_s)
    case = Case(
        split=parts,
        terms=terms,
        machine=machine,
        total_s=total_s,
        threads=threads,
        precision=execution.precision,
        target=target,
    )
    return Diagnosis(
        total_s=total_s,
        terms=terms,
        dominant=dominant,
        why=why,
        ledger=parts.ledger(ledger, total_s),
        bounds=bounds(case),
        target=target,
        threads=threads,
        serial_bound_s=serial,
        overlapped_bound_s=overlapped,
    )


def verdict(terms: tuple[TermTime, ...], total_s: float) -> tuple[Term | None, str]:
    """The dominant term and why, or None and between what it is undetermined."""
    first, second = sorted(terms, key=lambda one: -one.seconds.value)[:2]
    if first.term is Term.RESIDUAL:
        return None, f"undetermined: {_share(first, total_s)} of the time is not explained ({first.evidence})"
    rivals = [one for one in terms if one is not first and one.seconds.high >= first.seconds.low]
    if rivals:
        rival = max(rivals, key=lambda one: one.seconds.high)
        return None, (
            f"undetermined: {first.term} {_range(first, total_s)} and {rival.term} {_range(rival, total_s)} "
            f"of the time overlap ({first.evidence}; {rival.evidence})"
        )
    return first.term, (
        f"{first.term} is {_range(first, total_s)} of the time, the next, {second.term}, {_range(second, total_s)}: "
        f"{first.evidence}"
    )


def _share(one: TermTime, total_s: float) -> str:
    return f"{one.seconds.value / total_s:.0%}"


def _range(one: TermTime, total_s: float) -> str:
    return f"{one.seconds.value / total_s:.0%} [{one.seconds.low / total_s:.0%}, {one.seconds.high / total_s:.0%}]"
