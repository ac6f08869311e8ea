"""Runs cases one after the other and counts them; live and replayed ones apart.

A case whose packages are not installed is undetermined and says what is missing. Anything else that goes wrong is a
bug of ours and goes through: a suite that swallowed it would call it an answer.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ironlaw.records import Machine, UserError
from ironlaw.validating.case import Answer, Case, Outcome, Said
from ironlaw.validating.cases import all_cases
from ironlaw.validating.here import Here

SCHEMA = "ironlaw.validation/1"


def run(know_machine: Callable[[], Machine], *, names: Iterable[str] = (), talk: Callable[[str], None]) -> list[Answer]:
    """The answers to every case, or to those named. Raises UserError for a name that is none."""
    chosen = _chosen(names)
    machine = know_machine()
    answers = []
    with tempfile.TemporaryDirectory(prefix="ironlaw-cases-") as folder:
        here = Here(machine=machine, folder=Path(folder))
        for case in chosen:
            with _silenced():
                answer = answered(case, here)
            talk(f"{answer.outcome:12} {case.name} ({answer.seconds:.1f} s)")
            answers.append(answer)
    return answers


def answered(case: Case, here: Here) -> Answer:
    """One case, its situation and its twin."""
    start = time.perf_counter()
    said, cured = (_asked(ask, here) for ask in (case.ask, case.ask_cured))
    return Answer(case=case, said=said, cured=cured, seconds=time.perf_counter() - start)


def data(answers: Iterable[Answer]) -> dict[str, Any]:
    """The answers as ``ironlaw.validation/1``."""
    found = list(answers)
    return {
        "schema": SCHEMA,
        "live": _count(one for one in found if not one.case.replayed),
        "replayed": _count(one for one in found if one.case.replayed),
        "cases": [_row(one) for one in found],
    }


def _chosen(names: Iterable[str]) -> list[Case]:
    known = {case.name: case for case in all_cases()}
    wanted = list(names)
    if unknown := [name for name in wanted if name not in known]:
        raise UserError(f"case {', '.join(unknown)}", "is not known", f"Use: {', '.join(known)}.")
    return [known[name] for name in wanted] or list(known.values())


def _asked(ask: Callable[[Here], Said], here: Here) -> Said:
    try:
        return ask(here)
    except (ImportError, UserError) as error:
        return Said(fires=None, words=f"could not be asked here: {error}")


def _count(answers: Iterable[Answer]) -> dict[str, int]:
    outcomes = Counter(answer.outcome for answer in answers)
    return {**{str(outcome): outcomes[outcome] for outcome in Outcome}, "of": outcomes.total()}


def _row(answer: Answer) -> dict[str, Any]:
    case = answer.case
    return {
        "name": case.name,
        "numbers": list(case.numbers),
        "reference": case.reference,
        "replayed": case.replayed,
        "outcome": str(answer.outcome),
        "situation": case.situation,
        "verdict": case.verdict,
        "fires": answer.said.fires,
        "said": answer.said.words,
        "cured": case.cured,
        "cured_fires": answer.cured.fires,
        "cured_said": answer.cured.words,
        "seconds": round(answer.seconds, 3),
    }


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """What libraries print by themselves is dropped: standard output is for the answer alone."""
    kept = [os.dup(stream) for stream in (1, 2)]
    try:
        with open(os.devnull, "wb") as nothing:
            for stream in (1, 2):
                os.dup2(nothing.fileno(), stream)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, own in zip((1, 2), kept, strict=True):
            os.dup2(own, stream)
            os.close(own)
