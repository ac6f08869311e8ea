"""A folder that ships: the artefact's files, ``manifest.json``, ``run.py``, and the proof that it runs.

Written beside and renamed, so that a folder with that name is always whole. The check starts a fresh Python
in the packaged folder, without ironlaw in sight, and compares its outputs with those that were recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.records import Artefact, Execution, Run, TensorSpec, Trial, UserError, from_data, to_data

MANIFEST_SCHEMA = "ironlaw.manifest/1"
CHECK_LIMIT_S = 600.0
_TAIL = """
import sys
import numpy
if len(sys.argv) > 1:  # outputs into a file, for the check of the package
    many = list(outputs.values()) if hasattr(outputs, "items") else outputs
    found = many if isinstance(many, (list, tuple)) else [many]
    arrays = [o.detach().float().numpy() if hasattr(o, "detach") else numpy.asarray(o) for o in found]
    numpy.savez(sys.argv[1], *arrays)
"""


def package(run: Run, trial: Trial, folder: Path) -> dict[str, Any]:
    """Write the package of ``trial`` into ``folder`` (replaced when it is one of ours) and check it.

    Returns the manifest. Raises UserError when the trial has nothing to ship, when ``folder`` holds something
    else, and when the package does not run in a fresh process.
    """
    artefact = trial.artefact
    if artefact is None or not Path(artefact.folder).exists():
        raise UserError(f"trial {trial.id}", "has no artefact any more", "Run `ironlaw tune` again to rebuild it.")
    _refuse_foreign(folder)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(artefact.folder, beside)
    (beside / "run.py").write_text(artefact.snippet + "\n" + _TAIL)
    check = _check(beside, artefact)
    manifest = _manifest(run, trial, artefact, beside, check)
    (beside / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    for path in beside.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(beside, folder)
    return manifest


def verify(folder: Path) -> list[str]:
    """What differs between a package and its manifest; empty when it is whole."""
    manifest = json.loads((folder / "manifest.json").read_text())
    wrong = []
    for name, digest in manifest["sha256"].items():
        path = folder / name
        if not path.exists():
            wrong.append(f"{name} is missing")
        elif _digest(path) != digest:
            wrong.append(f"{name} was changed")
    return wrong


def is_package(folder: Path) -> bool:
    """Whether a folder looks like one of ours."""
    return (folder / "manifest.json").is_file()


def read_package(folder: Path) -> Artefact:
    """The artefact in a packaged folder, to be run again.

    Raises UserError when the folder is not whole, or holds code that runs when it is loaded (a pickled module, a
    compiled library, a training job): a folder may come from anywhere.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        wrong = verify(folder)
        artefact = Artefact(
            kind=manifest["kind"],
            folder=str(folder.absolute()),
            files=tuple(manifest["files"]),
            target=manifest["target"],
            execution=from_data(Execution, manifest["execution"]),
            inputs=tuple(from_data(TensorSpec, spec) for spec in manifest["inputs"]),
            outputs=tuple(from_data(TensorSpec, spec) for spec in manifest["outputs"]),
            snippet="\n".join(manifest["how_to_load"]),
            size_bytes=sum((folder / name).stat().st_size for name in manifest["files"]),
            example=manifest["example"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "Package the point again: ironlaw deploy RUN."
        raise UserError(str(folder), f"is not a whole package of ironlaw ({error!r})", remedy) from error
    if wrong:
        raise UserError(str(folder), f"does not match its manifest: {'; '.join(wrong)}", "Package the point again.")
    outside = [name for name in (*artefact.files, artefact.example) if not _inside(folder, name)]
    if outside:
        raise UserError(str(folder), f"names files outside of it: {', '.join(outside)}", "Package the point again.")
    if artefact.kind != "file":
        raise UserError(
            str(folder), f"holds code that runs when it is loaded ({artefact.kind})",
            "Name the run that it is of: its artefact lies in this store.",
        )  # fmt: skip
    return artefact


def _inside(folder: Path, name: str) -> bool:
    return (folder / name).resolve().is_relative_to(folder.resolve())


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / "manifest.json").exists():
        raise UserError(str(folder), "is not empty and not a package of ironlaw", "Choose another folder.")


def _check(folder: Path, artefact: Artefact) -> dict[str, Any]:
    """Run the package in a fresh process on its example; raises UserError when it fails."""
    outputs = folder / "check.npz"
    variables = {name: str(value) for name, value in artefact.execution.variables}
    done = subprocess.run(
        [sys.executable, "run.py", str(outputs.name)],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=CHECK_LIMIT_S,
        check=False,
    )
    if done.returncode != 0 or not outputs.exists():
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError("package", f"its own run.py fails: {last}", "This is a bug of ironlaw: please report it.")
    with np.load(outputs) as found:
        arrays = [found[name] for name in found.files]
    outputs.unlink()
    finite = all(np.isfinite(a).all() for a in arrays if a.dtype.kind == "f")
    return {"ran": True, "outputs": [list(a.shape) for a in arrays], "finite": bool(finite)}


def _manifest(run: Run, trial: Trial, artefact: Artefact, folder: Path, check: dict[str, Any]) -> dict[str, Any]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {
        "schema": MANIFEST_SCHEMA,
        "kind": artefact.kind,
        "target": artefact.target,
        "files": list(artefact.files),
        "example": artefact.example,
        "sha256": {str(p.relative_to(folder)): _digest(p) for p in files},
        "inputs": to_data(artefact.inputs),
        "outputs": to_data(artefact.outputs),
        "how_to_load": artefact.snippet.splitlines(),
        "execution": to_data(artefact.execution),
        "provenance": {
            "run": run.id,
            "trial": trial.id,
            "workload": run.name,
            "changes": to_data(trial.changes),
            "made": run.created,
        },
        "measured": to_data(trial.measured),
        "gain": to_data(trial.gain),
        "quality": to_data(trial.quality),
        "certificate": to_data(trial.certificate),
        "environment": to_data(run.environment),
        "check": check,
    }


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
