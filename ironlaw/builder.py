"""The process that turns a plan into an artefact: conversions, levers, export.

``python -m ironlaw.builder`` answers the same JSON lines as the worker. Converting, calibrating and
compiling can crash, hang or fill the memory, so none of it happens in the main process. Each prefix of
a plan is kept by its key: a sibling that shares the first steps does not repeat them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ironlaw import forms
from ironlaw.contracts import Lever
from ironlaw.records import Candidate, Change, ModelFile, Snapshot, digest_of, from_data, to_data
from ironlaw.registry import levers, target
from ironlaw.worker import die_with_parent, serve


class Builder:
    """Answers requests; every path it writes to is given by the parent."""

    def build(self, base: dict[str, Any], steps: list[dict[str, Any]], root: str, folder: str) -> dict[str, Any]:
        """Apply ``steps`` ({lever, settings}) to ``base`` and export into ``folder`` (must not exist)."""
        candidate = from_data(Candidate, base)
        for step in steps:
            candidate = self._apply_kept(candidate, step, Path(root))
        runtime = target(candidate.execution.target)
        if candidate.model.form not in runtime.forms:
            candidate = _bring(candidate, runtime.forms)
        beside = Path(f"{folder}.tmp-{os.getpid()}")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        artefact = runtime.export(candidate, beside)
        _sync(beside)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(beside, folder)
        artefact = dataclasses.replace(artefact, folder=folder)
        return {"candidate": to_data(candidate), "artefact": to_data(artefact)}

    def ledger(
        self, model: dict[str, Any], snapshot: dict[str, Any], batch: int, cache_bytes: int | None
    ) -> dict[str, Any]:
        """The counting pass over one call."""
        from ironlaw.measure.ledger import ledger_of

        counted = ledger_of(from_data(ModelFile, model), from_data(Snapshot, snapshot), batch, cache_bytes=cache_bytes)
        return {"ledger": to_data(counted)}

    def _apply_kept(self, candidate: Candidate, step: dict[str, Any], root: Path) -> Candidate:
        lever = levers()[step["lever"]]
        kept = root / _prefix_key(candidate, lever, step["settings"])
        record = kept / "candidate.json"
        if record.exists():
            return from_data(Candidate, json.loads(record.read_text()))
        kept.mkdir(parents=True, exist_ok=True)
        if lever.consumes and candidate.model.form not in lever.consumes:
            candidate = _bring(candidate, lever.consumes)
        after, change = lever.apply(
            dataclasses.replace(candidate, workspace=str(kept)), lever.Settings(**step["settings"])
        )
        after = dataclasses.replace(after, changes=(*candidate.changes, change))
        beside = record.with_suffix(".tmp")
        beside.write_text(json.dumps(to_data(after)))
        os.replace(beside, record)
        return after


def _bring(candidate: Candidate, wanted: Iterable[str]) -> Candidate:
    """The candidate in the nearest of the wanted forms."""
    form = forms.nearest(candidate.model.form, wanted)
    if form is None:
        raise forms.ConversionError(
            f"{candidate.model.form} -> {'/'.join(sorted(wanted))}", "there is no such conversion"
        )
    return forms.convert(candidate, form)


def _prefix_key(candidate: Candidate, lever: Lever, settings: dict[str, Any]) -> str:
    bare = dataclasses.replace(candidate, workspace="", changes=_without_facts(candidate.changes))
    text = digest_of(bare) + lever.name + str(lever.version) + json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _without_facts(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    return tuple(dataclasses.replace(change, facts=()) for change in changes)


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def main() -> None:
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(Builder(), sys.stdin, answers)


if __name__ == "__main__":
    main()
