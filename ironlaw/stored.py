"""What is done with a run that is stored: load it, write its report, package a point of it. Nothing is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironlaw.records import Run, Trial, UserError
from ironlaw.store import Store, clear_errors, home_folder, write_atomically


def report(run: Run | str, *, to: str | Path | None = None, home: str | Path | None = None) -> Path:
    """Write the self-contained HTML of a run; returns where."""
    from ironlaw.report.html import render

    root = Path(home) if home else home_folder()
    found = run if isinstance(run, Run) else load_run(run, home=root)
    path = Path(to) if to else root / "runs" / found.id / "report.html"
    write_atomically(path, render(found))
    return path


def load_run(run_id: str, *, home: Path | None = None) -> Run:
    """A stored run by id, unique prefix or ``latest``."""
    with Store(home or home_folder()) as store:
        return store.run(run_id)


def deploy(
    run: Run | str, *, trial: str | None = None, to: str | Path | None = None, home: str | Path | None = None
) -> tuple[Path, dict[str, Any]]:
    """Package the chosen point of a run (default: the best) and check it in a fresh process."""
    from ironlaw.deploy.package import package

    root = Path(home) if home else home_folder()
    found = run if isinstance(run, Run) else load_run(run, home=root)
    chosen = found.best_trial if trial is None else _trial_of(found, trial)
    folder = Path(to) if to else root / "runs" / found.id / "artefact"
    with clear_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        manifest = package(found, chosen, folder)
    return folder, manifest


def _trial_of(run: Run, prefix: str) -> Trial:
    found = [t for t in (run.baseline, *run.trials) if t.id.startswith(prefix)]
    if len(found) != 1:
        raise UserError(
            f"trial {prefix!r}", "is not one of this run's" if not found else "is ambiguous", "See the report's table."
        )
    return found[0]
