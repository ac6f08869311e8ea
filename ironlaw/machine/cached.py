"""Machines on disk, one file an identity, in a folder that the caller names.

The digest of the identity names the file, so that another processor, core count or runtime version is
another machine. A file is written beside and renamed; one that cannot be read is no machine: it is
measured anew, with a word. A quick machine never takes the place of a full one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from ironlaw.records import MACHINE_SCHEMA, Machine, from_json, to_json

PROBES_VERSION = 1
"""Raised when a probe measures something else, so that old numbers are not mixed with new ones."""


def path_of(folder: Path, digest: str) -> Path:
    return folder / f"{digest[:32]}-{PROBES_VERSION}.json"


def load(folder: Path, digest: str, *, full: bool = False, talk: Callable[[str], None] | None = None) -> Machine | None:
    """The machine of that identity; None when there is none, none that can be read, or no full one where asked."""
    path = path_of(folder, digest)
    try:
        machine = from_json(Machine, path.read_text())
        if machine.schema != MACHINE_SCHEMA or machine.environment.identity.digest != digest:
            raise ValueError(f"it holds {machine.schema} of another identity")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        if talk:
            talk(f"{path} cannot be read ({error}): this machine is measured anew")
        return None
    return None if full and machine.quick else machine


def save(folder: Path, machine: Machine) -> Path:
    """Writes it, unless it is quick and a full one is there. Raises OSError when the folder cannot be written."""
    digest = machine.environment.identity.digest
    path = path_of(folder, digest)
    if machine.quick and load(folder, digest, full=True) is not None:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".machine-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(to_json(machine, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return path
