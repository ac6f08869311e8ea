"""What perturbations make of a diagnosis: whether each confirms its term, and the verdict where two terms were close.

A perturbation measures what a diagnosis reasons to. Where both are known, the interval of a term is narrowed to what
they share, or to what was measured where they exclude each other; terms never sum to more than the call. A term is
decided only when a perturbation confirms it, none refutes it, and every other that could be larger is measured below it
or refuted. A verdict that its perturbations refute is taken back: better undetermined than wrong, unless they measured
another term to be most of the call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ironlaw.records import Diagnosis, Interval, Perturbation, Term

WIDE = 1.0 / 3.0
"""Of a call: an interval wider than this cannot confirm a term."""
SLACK = 0.05
"""Of a call: a perturbation changes a little more than the one thing; nearer than this the two agree."""


def rivals(diagnosis: Diagnosis) -> tuple[Term, Term] | None:
    """The two real terms between which a diagnosis is undetermined; None when it is not, or for want of explanation."""
    if diagnosis.dominant is not None or len(diagnosis.terms) < 2:
        return None
    first = max(diagnosis.terms, key=lambda one: one.seconds.value)
    close = [
        one
        for one in diagnosis.terms
        if one is not first and one.term is not Term.RESIDUAL and one.seconds.high >= first.seconds.low
    ]
    if first.term is Term.RESIDUAL or not close:
        return None
    return first.term, max(close, key=lambda one: one.seconds.high).term


def agrees(diagnosis: Diagnosis, term: Term, seconds: Interval) -> bool | None:
    """Whether measured ``seconds`` of a term agree with the diagnosis' interval; None when they cannot tell.

    What threads do not share (``serial``) holds the latency and more: a latency beyond it is refuted, one as large
    confirmed, and a smaller one says nothing.
    """
    claimed = _claimed(diagnosis, Term.LATENCY if term is Term.SERIAL else term)
    if claimed is None:
        return None
    slack = SLACK * diagnosis.total_s
    if claimed.low > seconds.high + slack:
        return False
    if seconds.low > claimed.high + slack:
        return None if term is Term.SERIAL else False
    return True if seconds.high - seconds.low <= WIDE * diagnosis.total_s else None


def confirmed(diagnosis: Diagnosis, perturbations: Sequence[Perturbation]) -> Diagnosis:
    """The diagnosis with its perturbations: decided, confirmed or taken back by them; ``why`` names which."""
    found = dataclasses.replace(diagnosis, perturbations=tuple(perturbations))
    if diagnosis.dominant is not None:
        return _checked(found, diagnosis.dominant)
    term = _decided(found)
    if term is None:
        return found
    others = [one for one in perturbations if one.confirms is False and _of(one) is not term]
    why = f"{term}, decided by perturbation: {_said(_confirming(found, term), found.total_s)}"
    if others:
        why += f"; refuted: {_said(others, found.total_s)}"
    return dataclasses.replace(found, dominant=term, why=f"{why} (terms alone: {diagnosis.why})")


def _checked(diagnosis: Diagnosis, term: Term) -> Diagnosis:
    """A verdict with what supports it, or taken back when it is only refuted."""
    against, support = _refuting(diagnosis, term), _confirming(diagnosis, term)
    if against and not support:
        refuted = _said(against, diagnosis.total_s)
        other = _most(diagnosis, term)
        if other is not None:
            why = (
                f"{other.term}, found by perturbation: {_said([other], diagnosis.total_s)}; "
                f"refuted: {refuted} (terms alone: {diagnosis.why})"
            )
            return dataclasses.replace(diagnosis, dominant=other.term, why=why)
        why = f"undetermined: the terms say {term}, which perturbations refute: {refuted} ({diagnosis.why})"
        return dataclasses.replace(diagnosis, dominant=None, why=why)
    if not support:
        return diagnosis
    said = f"{diagnosis.why}; confirmed by perturbation: {_said(support, diagnosis.total_s)}"
    if against:
        said += f"; against it: {_said(against, diagnosis.total_s)}"
    return dataclasses.replace(diagnosis, why=said)


def _most(diagnosis: Diagnosis, refuted: Term) -> Perturbation | None:
    """What measured another term to be most of the call; None where nothing did, or where two disagree about it."""
    half = 0.5 * diagnosis.total_s
    found = [
        one
        for one in diagnosis.perturbations
        if one.seconds is not None and one.confirms is not None and one.term not in (refuted, Term.SERIAL)
    ]
    most = next((one for one in found if one.seconds is not None and one.seconds.low > half), None)
    if most is None or any(one.seconds.high < half for one in found if one.term is most.term and one.seconds):
        return None
    return most


def _decided(diagnosis: Diagnosis) -> Term | None:
    known = _narrowed(diagnosis)
    first = max(known, key=lambda term: known[term].value)
    if first is Term.RESIDUAL or not _confirming(diagnosis, first) or _refuting(diagnosis, first):
        return None
    close = [term for term in known if term is not first and known[term].high >= known[first].low]
    return first if all(_found_smaller(diagnosis, term) for term in close) else None


def _found_smaller(diagnosis: Diagnosis, term: Term) -> bool:
    """Whether a term is refuted, every time for taking less than the diagnosis says, and never confirmed."""
    claimed, against = _claimed(diagnosis, term), _refuting(diagnosis, term)
    if claimed is None or not against or _confirming(diagnosis, term):
        return False
    return all(one.seconds is not None and one.seconds.high < claimed.low for one in against)


def _narrowed(diagnosis: Diagnosis) -> dict[Term, Interval]:
    """Each term as far as diagnosis, perturbations and the sum of the terms know it."""
    known = {one.term: _measured(diagnosis, one.term, one.seconds) for one in diagnosis.terms}
    lows = sum(interval.low for interval in known.values())
    out = {}
    for term, interval in known.items():
        high = max(interval.low, min(interval.high, diagnosis.total_s - (lows - interval.low)))
        out[term] = Interval(low=interval.low, value=min(high, interval.value), high=high)
    return out


def _measured(diagnosis: Diagnosis, term: Term, claimed: Interval) -> Interval:
    """The interval of a term narrowed by what was measured of it; as it was where measurements disagree."""
    against, support = _refuting(diagnosis, term), _confirming(diagnosis, term)
    if against and support:
        return claimed
    for one in (*against, *support):
        assert one.seconds is not None
        low = 0.0 if one.term is Term.SERIAL else one.seconds.low
        low, high = max(claimed.low, low), min(claimed.high, one.seconds.high)
        if low > high:
            low, high = (0.0 if one.term is Term.SERIAL else one.seconds.low), one.seconds.high
        claimed = Interval(low=low, value=min(high, max(low, one.seconds.value)), high=high)
    return claimed


def _of(one: Perturbation) -> Term:
    """The term of the diagnosis that a perturbation is evidence for or against."""
    return Term.LATENCY if one.term is Term.SERIAL else one.term


def _confirming(diagnosis: Diagnosis, term: Term) -> list[Perturbation]:
    return [one for one in diagnosis.perturbations if _of(one) is term and one.confirms is True]


def _refuting(diagnosis: Diagnosis, term: Term) -> list[Perturbation]:
    return [one for one in diagnosis.perturbations if _of(one) is term and one.confirms is False]


def _claimed(diagnosis: Diagnosis, term: Term) -> Interval | None:
    return next((one.seconds for one in diagnosis.terms if one.term is term), None)


def _said(perturbations: Sequence[Perturbation], total_s: float) -> str:
    """``batch (latency 55% [50%, 61%])``: what each measured, as shares of a call."""
    said = []
    for one in perturbations:
        assert one.seconds is not None
        low, value, high = (s / total_s for s in (one.seconds.low, one.seconds.value, one.seconds.high))
        said.append(f"{one.name} ({one.term} {value:.0%} [{low:.0%}, {high:.0%}])")
    return ", ".join(said)
