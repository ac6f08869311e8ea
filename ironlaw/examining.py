"""Terms of the time of one measured subject: counted, profiled, inspected, diagnosed, searched for silent killers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ironlaw.bench import Bench, Subject
from ironlaw.diagnose import diagnose, merge
from ironlaw.diagnose.energy import modelled
from ironlaw.diagnose.killers import Facts, findings
from ironlaw.measure.process import WorkerFailure
from ironlaw.measure.summary import service
from ironlaw.records import Candidate, Diagnosis, Form, Ledger, Machine


def examined(bench: Bench, subject: Subject, machine: Machine, talk: Callable[[str], None]) -> Diagnosis:
    """The diagnosis of a subject that was measured; what could not be counted or profiled is said to ``talk``."""
    assert subject.candidate is not None
    assert subject.artefact is not None
    ledger = ledger_of(bench, subject.candidate, machine, talk)
    try:
        operators, seen = bench.profile(subject), bench.inspect(subject)
    except WorkerFailure as failure:
        talk(f"no operator times for {subject.plan.label}: {failure.reason}")
        operators, seen = (), None
    measured = service(subject.launches, subject.artefact)
    execution = subject.artefact.execution
    diagnosis = diagnose(merge(ledger, operators), measured, machine, execution)
    facts = Facts(
        ledger=diagnosis.ledger,
        terms=diagnosis.terms,
        measurement=measured,
        machine=machine,
        execution=execution,
        certificate=subject.certificate,
        inspection=seen,
    )
    own_form = subject.candidate.model.form != Form.OPENVINO
    energy = modelled(diagnosis.ledger, precision=execution.precision, own_form=own_form)
    return dataclasses.replace(diagnosis, findings=findings(facts), energy=energy)


def ledger_of(bench: Bench, candidate: Candidate, machine: Machine, talk: Callable[[str], None]) -> Ledger:
    """Operators of one call; none, with the reason, when the model cannot be counted."""
    last = max((cache.size_bytes for cache in machine.caches), default=None)
    try:
        return bench.ledger(candidate, last)
    except WorkerFailure as failure:
        talk(f"operators were not counted: {failure.reason}")
        return Ledger(ops=(), batch=candidate.execution.batch, source=f"not counted: {failure.reason}")
