"""Ledgers of real models, counted once by :mod:`ironlaw.validating.record`, carried to published machines.

Nothing of a recording says what a case should answer: it holds operators, FLOPs and bytes, and the machine is the
vendor's. What is replayed is the way from there to a verdict.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from ironlaw import hardware
from ironlaw.diagnose.elsewhere import elsewhere
from ironlaw.hardware import PublishedMachine
from ironlaw.records import Diagnosis, Elsewhere, Ledger, from_data


def on(name: str, machine: str) -> Elsewhere:
    """A recorded call on a published machine, without any time measured here."""
    there = hardware.machine(machine)
    book = ledger(name, there)
    unmeasured = Diagnosis(total_s=1.0, terms=(), dominant=None, why="not run here", ledger=book, bounds=())
    return elsewhere(unmeasured, there, counted=book, weights_bytes=weights_bytes(name))


def ledger(name: str, there: PublishedMachine) -> Ledger:
    """The recording with the traffic of that machine's cache; of first touches only where it was not counted."""
    found = _read(name)["ledgers"]
    own = str(int(there.cache_bytes.value)) if there.cache_bytes else ""
    return from_data(Ledger, found.get(own, found["None"]))


def weights_bytes(name: str) -> float:
    """All weights of the recorded model."""
    return float(_read(name)["weights_bytes"])


@cache
def _read(name: str) -> Any:
    folder = resources.files("ironlaw.validating").joinpath("recordings")
    return json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8"))
