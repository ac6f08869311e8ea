"""What every lever does at the end of ``apply``: a new candidate and the record of what changed.

Kept apart from the levers so that none imports another. ``facts`` come from comparing the two
executions, never from what a lever says it did, so that a no-op is seen as one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ironlaw.contracts import Lever
from ironlaw.records import Candidate, Change, Execution, ModelFile, Pairs, Scalar


def settings_pairs(settings: Any) -> Pairs:
    """What a frozen ``Settings`` sets otherwise than its defaults, in the order of its fields."""
    fields = dataclasses.fields(settings)
    return tuple((f.name, value) for f in fields if (value := getattr(settings, f.name)) != f.default)


def changed(
    lever: Lever,
    candidate: Candidate,
    settings: Any,
    *,
    execution: Execution | None = None,
    model: ModelFile | None = None,
    facts: dict[str, Scalar] | None = None,
) -> tuple[Candidate, Change]:
    """The candidate with a new execution or model, and its change (``no_op`` when both are as before)."""
    execution = execution or candidate.execution
    model = model or candidate.model
    differences: dict[str, Scalar] = {**execution_facts(candidate.execution, execution), **(facts or {})}
    change = Change(
        lever=lever.name,
        version=lever.version,
        settings=settings_pairs(settings),
        claims=tuple(sorted(lever.claims)),
        facts=tuple(sorted(differences.items())),
        no_op=execution == candidate.execution and model == candidate.model,
    )
    changes = (*candidate.changes, change)
    return dataclasses.replace(candidate, execution=execution, model=model, changes=changes), change


def execution_facts(before: Execution, after: Execution) -> dict[str, Scalar]:
    """Fields, options and variables that differ, with their new value (None when removed)."""
    facts: dict[str, Scalar] = {}
    for field in dataclasses.fields(Execution):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new:
            continue
        if field.name in ("options", "variables"):
            mine, theirs = dict(new), dict(old)
            for key in sorted({*mine, *theirs}):
                if mine.get(key) != theirs.get(key):
                    facts[f"{field.name[:-1]}.{key}"] = mine.get(key)
        else:
            facts[field.name] = ",".join(map(str, new)) if isinstance(new, tuple) else new
    return facts
