"""How far the terms of a diagnosis are from what perturbations answer, and how much of the time stays unexplained.

All distances are shares of the call. An answer has an interval, so a distance has one: from the nearest point of the
answer to the furthest; a goal is met only when the furthest keeps it. Some perturbations bound a term from one side
only, and then what lies on the right side is no distance at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks import common
from ironlaw.records import Diagnosis, Interval, Perturbation, Term

Side = Literal["equal", "at most", "at least"]
AGREES, RESIDUAL = 0.10, 0.10


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one perturbation says of a term, beside what the diagnosis says; shares of the call.

    ``side`` is how the term may lie to the answer; ``tells`` whether the perturbation can tell something at all.
    """

    case: str
    perturbation: str
    term: Term
    claimed: float
    found: Interval
    side: Side
    tells: bool

    @property
    def distance(self) -> Interval:
        """From the nearest to the furthest that the term may be from the answer."""
        low, value, high = self.found.low, self.found.value, self.found.high
        if self.side == "at most":  # an upper end that starts at nothing has no lower end of its own
            least = low if low > 0.0 else value
            away = [self.claimed - end for end in (high, value, least)]
        elif self.side == "at least":  # what is at least so much has no upper end
            away = [end - self.claimed for end in (low, value, value)]
        else:
            nearest = max(low - self.claimed, self.claimed - high)
            away = [nearest, abs(value - self.claimed), max(abs(low - self.claimed), abs(high - self.claimed))]
        near, middle, far = (max(0.0, one) for one in away)
        return Interval(low=near, value=max(near, middle), high=max(near, middle, far))

    def row(self) -> dict[str, common.Cell]:
        return {
            "case": self.case,
            "perturbation": self.perturbation,
            "term": str(self.term),
            "claimed": self.claimed,
            "found": self.found.value,
            "low": self.found.low,
            "high": self.found.high,
            "side": self.side,
            "apart": self.distance.value,
            "judged": self.tells,
        }


def answers(
    case: str, diagnosis: Diagnosis, perturbations: Iterable[Perturbation], *, settled: bool = True
) -> list[Answer]:
    """The perturbations that answered with a number, as shares of the call.

    What threads do not share (``serial``) is held against the latency, which it holds and more.
    """
    total = diagnosis.total_s
    found = []
    for one in perturbations:
        if one.seconds is None:
            continue
        term = Term.LATENCY if one.term is Term.SERIAL else one.term
        answer = Answer(
            case=case,
            perturbation=one.name,
            term=term,
            claimed=diagnosis.seconds(term) / total,
            found=one.seconds.scaled(1.0 / total),
            side=side_of(one),
            tells=settled and one.confirms is not None,
        )
        found.append(answer)
    return found


def side_of(one: Perturbation) -> Side:
    """How the term may lie to the answer.

    The serial part holds latency and more. Parts that fit the cache say the least that memory takes. A co-runner beside
    a working set that lives in the cache says the most, and its interval then starts at nothing.
    """
    if one.term is Term.SERIAL:
        return "at most"
    if one.name == "cached":
        return "at least"
    starts_at_nothing = one.seconds is not None and one.seconds.low == 0.0
    return "at most" if one.name == "co-runner" and starts_at_nothing else "equal"


def judge(report: common.Report, found: Sequence[Answer]) -> None:
    """One goal a case: the answer that is furthest from its term. Each end of the interval is that of the furthest."""
    for case in dict.fromkeys(answer.case for answer in found):
        own = [answer for answer in found if answer.case == case]
        judged = [answer for answer in own if answer.tells]
        name = f"{case}: furthest of a term from a perturbation's answer, share of a call"
        if not judged:
            report.goal(name, None, at_most=AGREES, note=f"none of {len(own)} answers can tell")
            continue
        worst = max(judged, key=lambda answer: answer.distance.value)
        note = f"{worst.perturbation} on {worst.term}; {len(judged)} of {len(own)} answers can tell"
        low, high = (max(getattr(answer.distance, end) for answer in judged) for end in ("low", "high"))
        report.goal(name, worst.distance.value, low, high, at_most=AGREES, note=note)


def judge_residual(report: common.Report, case: str, diagnosis: Diagnosis) -> None:
    """The share of the time that no term explains, with its interval; the row says what the others take."""
    total = diagnosis.total_s
    left = next((one.seconds for one in diagnosis.terms if one.term is Term.RESIDUAL), None)
    share = Interval(low=0.0, value=0.0, high=0.0) if left is None else left.scaled(1.0 / total)
    report.goal(f"{case}: residual, share of the time", share.value, share.low, share.high, at_most=RESIDUAL)
    others = sorted((one for one in diagnosis.terms if one.term is not Term.RESIDUAL), key=lambda o: -o.seconds.value)
    words = ", ".join(f"{one.term} {one.seconds.value / total:.0%}" for one in others if one.seconds.value > 0.0)
    report.arms.append({"case": case, "term": str(Term.RESIDUAL), "claimed": share.value, "beside": words})
