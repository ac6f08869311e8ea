"""What ``levers``, ``laws`` and ``runs`` show, as plain rows."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ironlaw import registry
from ironlaw.records import UserError
from ironlaw.store import Store, home_folder


def lever_catalogue() -> list[dict[str, Any]]:
    """Every lever by its declarations."""
    return [
        {
            "name": lever.name,
            "axis": str(lever.axis),
            "attacks": sorted(map(str, lever.attacks)),
            "claims": sorted(lever.claims),
            "needs": sorted(lever.needs),
            "forms": f"{'/'.join(sorted(lever.consumes)) or 'any'} -> {lever.produces or 'same'}",
        }
        for lever in registry.levers().values()
    ]


def law_catalogue() -> list[dict[str, Any]]:
    """Every law with its inputs."""
    from ironlaw.laws.catalogue import laws

    return [
        {
            "law": law.name,
            "inputs": [f"{i.name} ({i.unit})" for i in law.inputs],
            "unit": law.unit,
            "valid while": law.valid_while,
        }
        for law in laws().values()
    ]


def compute_law(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """A law from ``--input value`` pairs. Raises UserError for an unknown law or a bad input."""
    from ironlaw.laws.catalogue import compute, laws

    inputs: dict[str, float] = {}
    words = [part for argument in arguments for part in argument.split("=", 1)]
    for flag, value in zip(words[::2], words[1::2], strict=False):
        try:
            inputs[flag.lstrip("-").replace("-", "_")] = float(value)
        except ValueError:
            raise UserError(
                f"{flag} {value}", "is not a number", f"Give numbers: ironlaw laws {name} --p 0.95"
            ) from None
    if len(words) % 2:
        raise UserError(f"{words[-1]}", "has no value", f"Give pairs: ironlaw laws {name} --p 0.95")
    if name not in laws():
        raise UserError(f"law {name!r}", "is not known", f"Use one of: {', '.join(laws())}.")
    try:
        answer: dict[str, Any] = compute(name, inputs)
    except ValueError as error:
        wanted = ", ".join(f"--{i.name} ({i.unit})" for i in laws()[name].inputs)
        raise UserError(f"law {name}", str(error), f"It takes {wanted}.") from error
    return answer


def list_runs(home: Path | None = None) -> list[dict[str, Any]]:
    """The stored runs, the newest first."""
    rows = []
    with Store(home or home_folder()) as store:
        for run_id, made, name, _ in store.runs():
            run = store.run(run_id)
            gain = run.best_trial.gain
            rows.append(
                {
                    "id": run_id,
                    "when": datetime.datetime.fromtimestamp(made).isoformat(timespec="minutes"),
                    "workload": name,
                    "objective": str(run.goal.objective),
                    "best": run.best_trial.label,
                    "gain": f"{gain.median:.2f}x" if gain else "",
                }
            )
    return rows


def prune(keep: int, home: Path | None = None) -> list[str]:
    """Delete all but the newest runs; returns the ids that are gone."""
    with Store(home or home_folder()) as store:
        return store.prune(keep)
