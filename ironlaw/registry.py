"""Finds levers and targets: a walk over our own packages plus one entry-point group each.

A module that fails to import is an error that says so: a lever is never silently missing.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import shutil
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ironlaw.contracts import Lever, Target
from ironlaw.records import UserError


@cache
def levers() -> dict[str, Lever]:
    """Every lever by name, in D·A·M order, then by name."""
    found = _collect("ironlaw.levers", "ironlaw.levers", _is_lever)
    order = {"data": 0, "algorithm": 1, "machine": 2}
    return dict(sorted(found.items(), key=lambda kv: (order[kv[1].axis], kv[0])))


@cache
def targets() -> dict[str, Target]:
    """Every target by name. Loading one imports no framework."""
    return _collect("ironlaw.targets", "ironlaw.targets", _is_target)


def target(name: str) -> Target:
    """The target of that name; only its own module is loaded, since workers start often."""
    if importlib.util.find_spec(f"ironlaw.targets.{name}") is not None:
        module = importlib.import_module(f"ironlaw.targets.{name}")
        found: list[Any] = [cls for _, cls in inspect.getmembers(module, inspect.isclass)]
        runtime: Target = next(cls for cls in found if getattr(cls, "name", "") == name)()
        return runtime
    try:
        return targets()[name]
    except KeyError:
        raise UserError(f"target {name!r}", "is not known", f"Use one of: {', '.join(targets())}.") from None


def unmet(
    needs: Iterable[str], *, isa: Iterable[str] = (), calibration: bool = True, evaluate: bool = True
) -> list[str]:
    """Which of the declared needs this process cannot meet, as words for the user."""
    missing = []
    for need in sorted(needs):
        what, _, name = need.partition(":")
        if what == "package" and importlib.util.find_spec(name) is None:
            missing.append(f"the package {name} is not installed")
        elif what == "isa" and name not in isa:
            missing.append(f"this CPU has no {name}")
        elif what == "calibration" and not calibration:
            missing.append("no calibration batches were given")
        elif what == "evaluate" and not evaluate:
            missing.append("no evaluate was given, and what it does to the trained model must be judged")
        elif what == "compiler":
            missing += _compiler_missing()
    return missing


def _compiler_missing() -> list[str]:
    if not any(shutil.which(cxx) for cxx in ("g++", "clang++", "c++")):
        return ["no C++ compiler was found (install g++)"]
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return ["the Python headers are missing (install python3-dev)"]
    return []


def _is_lever(cls: type) -> bool:
    return all(hasattr(cls, a) for a in ("axis", "attacks", "claims", "applies", "options", "predict", "apply"))


def _is_target(cls: type) -> bool:
    return all(hasattr(cls, a) for a in ("forms", "export", "load", "calibrate"))


def _collect(package: str, group: str, matches: Any) -> dict[str, Any]:
    root = importlib.import_module(package)
    found: dict[str, Any] = {}
    for info in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
        if info.ispkg or info.name.rsplit(".", 1)[1].startswith("_"):
            continue
        module = importlib.import_module(info.name)
        members: list[tuple[str, Any]] = inspect.getmembers(module, inspect.isclass)
        for _, cls in members:
            if cls.__module__ == info.name and not cls.__name__.startswith("_") and matches(cls):
                found[cls.name] = cls()
    for entry in importlib.metadata.entry_points(group=group):
        try:
            cls = entry.load()
        except Exception as error:
            raise UserError(
                f"plugin {entry.name!r} ({entry.value})",
                f"fails to import: {error}",
                "Fix or uninstall the package that provides it.",
                exit_code=4,
            ) from error
        found[cls.name] = cls()
    return found
