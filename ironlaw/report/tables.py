"""The tables of the page as plain rows of text, so that the template only places them.

Each cell that can be sorted carries the number behind its text; unknown sorts last, whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.records import Change, Diagnosis, Machine, Measurement, Outcome, Run, Term, Trial
from ironlaw.report import facts, marks, roofline, terms, units, words

OPERATORS = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Text, what it sorts by (None: unknown), and a second, quieter line."""

    text: str
    key: float | str | None
    quiet: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRow:
    number: int
    levers: list[tuple[str, str]]
    standing: marks.Standing
    outcome: str
    tone: str
    reused: bool
    gain: Cell
    latency: Cell
    quality: Cell
    size: Cell
    memory: Cell
    short: str
    why: str
    next_step: str
    details: list[tuple[str, facts.Facts]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TermRow:
    term: Term
    key: str
    cells: list[tuple[str, str]]
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PerturbationRow:
    name: str
    term: Term
    says: str
    verdict: str
    evidence: str


VERDICTS = {True: "confirmed", False: "refuted", None: "open"}
"""What a perturbation says of its term."""


def perturbation_rows(diagnosis: Diagnosis) -> list[PerturbationRow]:
    """What was changed, and what the time said of the term."""
    return [
        PerturbationRow(
            name=one.name,
            term=one.term,
            says=f"{units.seconds(one.seconds.value)}, {units.seconds_range(one.seconds)}" if one.seconds else "",
            verdict=VERDICTS[one.confirms],
            evidence=one.evidence,
        )
        for one in diagnosis.perturbations
    ]


def trial_rows(run: Run) -> list[TrialRow]:
    """Every trial, the baseline first."""
    return [_trial(run, number, trial) for number, trial in marks.numbered(run)]


def _trial(run: Run, number: int, trial: Trial) -> TrialRow:
    ratio = marks.gain_of(run, trial)
    gain = Cell(text=units.ratio(ratio), key=ratio)
    if trial.gain:
        gain = Cell(text=units.ratio(ratio), key=ratio, quiet=units.ratio_range(trial.gain.low, trial.gain.high))
    latency, size, memory = _amounts(trial.measured)
    return TrialRow(
        number=number,
        levers=[_lever(c) for c in trial.changes] or [("baseline", "")],
        standing=marks.standing(run, trial),
        outcome=words.OUTCOME[trial.outcome] if number else "baseline",
        tone=_tone(number, trial.outcome),
        reused=trial.reused,
        gain=gain,
        latency=latency,
        quality=_quality(run, trial),
        size=size,
        memory=memory,
        short="" if trial.outcome is Outcome.IMPROVED or not number else trial.reason or trial.outcome.cause,
        why=trial.reason or trial.outcome.cause,
        next_step=trial.outcome.next_step if number else "",
        details=facts.details(run, trial),
    )


def _quality(run: Run, trial: Trial) -> Cell:
    found = trial.quality
    if found is None:
        return Cell(text="not evaluated", key=None)
    if trial.id == run.baseline.id:
        return Cell(text=units.metric(found.value), key=found.drop)
    text = units.quality_drop(found, relative=run.goal.max_drop.relative)
    return Cell(text=units.metric(found.value), key=found.drop, quiet=text.replace(" (", "\n").rstrip(")"))


def _amounts(found: Measurement | None) -> tuple[Cell, Cell, Cell]:
    """Latency, size, peak memory."""
    if found is None:
        unknown = Cell(text=units.UNKNOWN, key=None)
        return unknown, unknown, unknown
    p50_s, size, memory = found.latency_s.p50, found.size_bytes, found.peak_memory_bytes
    return (
        Cell(text=units.seconds(p50_s), key=p50_s),
        Cell(text=units.size(size), key=size),
        Cell(text=units.size(memory), key=memory),
    )


def _tone(number: int, outcome: Outcome) -> str:
    if not number:
        return "plain"
    if outcome is Outcome.IMPROVED:
        return "good"
    return "bad" if outcome.failed else "plain"


def _lever(change: Change) -> tuple[str, str]:
    return change.lever, ", ".join(f"{k}={v}" for k, v in change.settings)


def term_rows(run: Run) -> list[TermRow]:
    """Each term before and after, with interval, share and evidence."""
    shown = terms.rows(run)
    found = []
    for term in words.terms_in_order(*(d for _, d in shown)):
        cells, evidence = [], ""
        for _, diagnosis in shown:
            at = next((t for t in diagnosis.terms if t.term == term), None)
            if at is None:
                cells.append(("none", ""))
                continue
            cells.append(
                (
                    units.seconds(at.seconds.value),
                    f"{units.percent(diagnosis.share(term))}, {units.seconds_range(at.seconds)}",
                )
            )
            evidence = evidence or at.evidence
        found.append(TermRow(term=term, key=terms.key(term), cells=cells, evidence=evidence))
    return found


def operator_rows(machine: Machine, diagnosis: Diagnosis) -> tuple[list[list[str]], str]:
    """The slowest operators, and a sentence on the others."""
    ops = roofline.by_time(diagnosis)
    rows = []
    for number, op in ops[:OPERATORS]:
        span = roofline.intensity(op)
        share = units.percent(op.time_s / diagnosis.total_s) if op.time_s is not None and diagnosis.total_s else ""
        rate = units.scaled(op.flops / op.time_s, "FLOP/s") if op.flops and op.time_s else units.UNKNOWN
        rows.append(
            [
                str(number),
                op.name,
                op.shape,
                str(op.calls),
                units.seconds(op.time_s) if op.time_s is not None else "not timed",
                share,
                units.scaled(op.flops, "FLOP") if op.flops is not None else "not counted",
                roofline.span(span),
                rate,
            ]
        )
    return rows, _others(diagnosis, [op.time_s for _, op in ops[OPERATORS:]])


def _others(diagnosis: Diagnosis, times: list[float | None]) -> str:
    parts = []
    if times:
        known = sum(t for t in times if t is not None)
        share = f", {units.percent(known / diagnosis.total_s)} of the time" if diagnosis.total_s and known else ""
        parts.append(f"{len(times)} more operators{share}, are in the data.")
    uncounted = diagnosis.ledger.uncounted
    if uncounted:
        parts.append(f"Not counted, so without a place in the chart: {', '.join(dict.fromkeys(uncounted))}.")
    return " ".join(parts)


def ceiling_rows(machine: Machine) -> list[list[str]]:
    """Every measured ceiling with its spread; one that its probe refused says why."""
    return [
        [
            c.name,
            c.dtype or "",
            str(c.threads),
            _rate(c.value, c.unit),
            f"{_rate(c.low, c.unit)} to {_rate(c.high, c.unit)}",
            ("valid" if c.valid else "not settled") + (f": {c.note}" if c.note else ""),
        ]
        for c in machine.ceilings
    ]


def _rate(value: float, unit: str) -> str:
    return units.seconds(value) if unit == "s" else units.scaled(value, unit)
