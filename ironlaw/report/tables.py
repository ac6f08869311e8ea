"""The tables of the page as plain rows of text, so that the template only places them.

Each cell that can be sorted carries the number behind its text; unknown sorts last, whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.records import (
    Artefact,
    Certificate,
    Change,
    Diagnosis,
    Environment,
    Execution,
    Machine,
    Measurement,
    Outcome,
    Pairs,
    Run,
    Term,
    Trial,
)
from ironlaw.report import marks, roofline, terms, units, words

OPERATORS = 15
Facts = list[tuple[str, str]]


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
    details: list[tuple[str, Facts]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TermRow:
    term: Term
    key: str
    cells: list[tuple[str, str]]
    evidence: str


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
        details=_details(run, trial),
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


def _details(run: Run, trial: Trial) -> list[tuple[str, Facts]]:
    """The groups of facts that a row unfolds into; groups without facts are left out."""
    prediction = trial.predicted
    predicted: Facts = []
    if prediction:
        low, high = prediction.speedup.low, prediction.speedup.high
        predicted.append(("gain, 90 %", f"{units.ratio(prediction.speedup.value)} ({units.ratio_range(low, high)})"))
        predicted.append(("basis", prediction.basis))
    groups = [
        ("Predicted", predicted),
        ("Measured", _measured(trial.measured) if trial.measured else []),
        (
            "Quality",
            [("verdict", words.quality_sentence(run, trial)), ("test", trial.quality.reason)] if trial.quality else [],
        ),
        ("Certificate", _certificate(trial.certificate) if trial.certificate else []),
        ("Changed", [(c.lever, _pairs(c.facts)) for c in trial.changes if c.facts]),
        ("Execution", _execution(trial.execution)),
        ("Artefact", artefact(trial.artefact) if trial.artefact else []),
    ]
    return [(name, [(k, v) for k, v in facts if v]) for name, facts in groups if any(v for _, v in facts)]


def _measured(found: Measurement) -> Facts:
    latency, energy = found.latency_s, found.energy_j
    tail = f"p90 {units.seconds(latency.p90)}, p99 {units.seconds(latency.p99)}"
    joules = f"{units.scaled(energy.value, 'J')}, {energy.source}" if energy.value is not None else units.UNKNOWN
    return [
        ("latency", f"p50 {units.seconds(latency.p50)}, {tail}, {latency.samples:,} calls"),
        ("not given", latency.refused),
        ("throughput", f"{units.number(found.throughput_per_s)} a second at batch {found.batch}"),
        ("launches", f"{found.launches} processes, {found.blocks} blocks each, {found.warmup_calls} warm-up calls"),
        ("warm", "" if found.warm else "no: warm-up did not converge"),
        ("threads used", f"{units.number(found.threads_effective)}"),
        ("page faults", f"{units.number(found.faults_per_call)} a call"),
        ("to load", f"{units.seconds(found.load_s)}, {units.seconds(found.prepare_s)} to prepare"),
        ("others took", f"{units.percent(found.foreign_cpu)} of the CPU"),
        ("energy a call", joules),
    ]


def _certificate(found: Certificate) -> Facts:
    return [
        ("converted", words.certificate(found)),
        ("precisions", _pairs(found.precisions)),
        ("providers", _pairs(found.providers)),
        ("threads", "" if found.threads is None else str(found.threads)),
        ("fallbacks", ", ".join(found.fallbacks) or "none"),
        ("evidence", "; ".join(found.evidence) or "none"),
    ]


def _execution(found: Execution) -> Facts:
    return [
        ("target", f"{found.target}, {found.precision}"),
        ("batch", str(found.batch)),
        ("threads", f"{found.threads}" + (f" on CPUs {', '.join(map(str, found.cpus))}" if found.cpus else "")),
        ("replicas", str(found.replicas) if found.replicas > 1 else ""),
        ("variables", _pairs(found.variables)),
        ("options", _pairs(found.options)),
    ]


def artefact(found: Artefact) -> Facts:
    """Where it lies and what it takes."""

    def tensors(specs: tuple[object, ...]) -> str:
        return "; ".join(str(s) for s in specs)

    inputs = tensors(tuple(f"{t.name} {'×'.join(map(str, t.shape))} {t.dtype}" for t in found.inputs))
    outputs = tensors(tuple(f"{t.name} {'×'.join(map(str, t.shape))} {t.dtype}" for t in found.outputs))
    return [
        ("kind", f"{found.kind} for {found.target}, {units.size(found.size_bytes)}"),
        ("folder", found.folder),
        ("files", ", ".join(found.files)),
        ("inputs", inputs),
        ("outputs", outputs),
    ]


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


def environment(found: Environment) -> tuple[Facts, Facts]:
    """What must be equal to compare, and what held meanwhile."""
    who, held = found.identity, found.conditions
    identity = [
        ("CPU", who.cpu),
        ("architecture", who.architecture),
        ("instructions", " ".join(who.isa)),
        ("cores", str(who.cores)),
        ("memory", units.size(who.memory_bytes)),
        ("accelerators", ", ".join(who.accelerators) or "none"),
        ("system", who.os),
        ("Python", who.python),
        *((name, str(version)) for name, version in who.versions),
    ]
    conditions = [
        ("load, 1 min", units.number(held.load_1m)),
        ("governor", held.governor or units.UNKNOWN),
        ("frequency", units.scaled(held.frequency_hz, "Hz")),
        ("allocator", held.allocator or units.UNKNOWN),
        *((name, str(value)) for name, value in held.variables),
    ]
    return identity, conditions


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


def _pairs(pairs: Pairs) -> str:
    return ", ".join(f"{k}={v}" for k, v in pairs)
