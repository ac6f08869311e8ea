"""Machines on disk, one file an identity, in a folder that the caller names.

The digest of the identity names the file, so that another processor, core count or runtime version is
another machine. A file is written beside and renamed; one that cannot be read is no machine: it is
measured anew, with a word. What is measured in a busy hour never spoils what was measured in a quiet
one: saving keeps the settled ceilings that are stored, so that a machine gets better from run to run,
and one whose main ceilings have not settled is soon measured again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

from ironlaw.records import MACHINE_SCHEMA, Ceiling, KernelRate, Machine, from_json, to_json

T = TypeVar("T", Ceiling, KernelRate)

PROBES_VERSION = 1
"""Raised when a probe measures something else, so that old numbers are not mixed with new ones."""
MAIN = (("matmul", "fp32"), ("dram", None), ("fault", None))
"""Ceilings that every diagnosis needs: while one of them has not settled, the machine goes stale."""
STALE_S = 900.0
"""Age after which an unsettled machine is measured again; a shorter one would measure in every run of a busy day."""


def path_of(folder: Path, digest: str) -> Path:
    return folder / f"{digest[:32]}-{PROBES_VERSION}.json"


def load(
    folder: Path,
    digest: str,
    *,
    full: bool = False,
    stale: bool = False,
    talk: Callable[[str], None] | None = None,
) -> Machine | None:
    """The machine of that identity; None when it must be measured, which ``talk`` explains.

    That is when there is none, none that can be read, no full one where ``full`` is asked, or when a main
    ceiling has not settled and a quarter of an hour has passed (unless ``stale`` is asked, to print what is there).
    """
    path, talk = path_of(folder, digest), talk or _silent
    try:
        machine = _read(path, digest)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        talk(f"{path} cannot be read ({error}): this machine is measured anew")
        return None
    if full and machine.quick:
        return None
    if not stale and unsettled_main(machine) and time.time() - path.stat().st_mtime > STALE_S:
        talk(f"the stored ceilings did not settle ({', '.join(unsettled_main(machine))}): measuring again")
        return None
    return machine


def save(folder: Path, machine: Machine) -> Machine:
    """Stores it, joined with what is stored, and returns what is stored now.

    Raises:
        OSError: the folder cannot be written; the file that was there stays.
    """
    digest = machine.environment.identity.digest
    path = path_of(folder, digest)
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        machine = merged(machine, _read(path, digest))
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
    return machine


def merged(new: Machine, old: Machine) -> Machine:
    """Both measurements of one identity as one: the new where it settled, else the old where that did.

    A quick one only fills the gaps of a full one.
    """
    base, other = (old, new) if new.quick and not old.quick else (new, old)
    return dataclasses.replace(
        base,
        ceilings=_joined(base.ceilings, other.ceilings, lambda c: (c.name, c.dtype, c.threads)),
        caches=max(base.caches, other.caches, key=lambda caches: any(c.source == "sweep" for c in caches)),
        kernels=_joined(base.kernels, other.kernels, lambda k: (k.target, k.kind, k.dtype, k.threads)),
    )


def unsettled_main(machine: Machine) -> list[str]:
    """Names of the main ceilings that are missing or did not settle at any thread count."""
    settled = {(c.name, c.dtype) for c in machine.ceilings if c.valid}
    return [" ".join(filter(None, key)) for key in MAIN if key not in settled]


def _read(path: Path, digest: str) -> Machine:
    machine = from_json(Machine, path.read_text())
    if machine.schema != MACHINE_SCHEMA or machine.environment.identity.digest != digest:
        raise ValueError(f"it holds {machine.schema} of another identity")
    return machine


def _joined(base: tuple[T, ...], other: tuple[T, ...], key: Callable[[T], Hashable]) -> tuple[T, ...]:
    """Each of ``base``, or its valid counterpart where it is not valid itself; then what only ``other`` has."""
    spare: dict[Hashable, T] = {key(item): item for item in other}
    known: set[Hashable] = {key(item) for item in base}
    chosen: list[T] = [item if item.valid else _valid(spare.get(key(item))) or item for item in base]
    chosen.extend(item for item in other if key(item) not in known)
    return tuple(chosen)


def _valid(item: T | None) -> T | None:
    return item if item is not None and item.valid else None


def _silent(_: str) -> None:
    return None
