"""The user's own code: loading their file, blaming the right line, carrying their classes by value.

A file is loaded once, under a private module name, so that it can neither shadow nor be shadowed by an
installed module; its folder joins ``sys.path`` as it does when Python runs the file. Workers never see
that file: classes that live outside the installed packages travel inside the pickle. Refused: files that do
not exist, and going on after the user's code raised.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ironlaw.records import UserError

_OURS = Path(__file__).resolve().parent.parent
_BY_VALUE_OF_OURS = ("ironlaw.workloads.positional", "ironlaw.workloads.demos")


def load_module(path: Path) -> ModuleType:
    """The module in ``path``, executed under a private name.

    Raises UserError when there is no such file or when its code raises.
    """
    path = path.resolve()
    if not path.is_file():
        raise UserError(str(path), "no such file", "Give file.py:name, model.onnx or demo:NAME.")
    name = f"_ironlaw_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file always has a spec"
    assert spec.loader is not None, "and a loader"
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise blamed(error, str(path), "raises when it is loaded") from error
    return module


def blamed(error: BaseException, given: str, wrong: str) -> UserError:
    """The user's exception as a UserError with its last line and place; raise it *from* the original."""
    said = f"{type(error).__name__}: {error}".strip().rstrip(":")
    said = said if len(said) <= 600 else f"{said[:600]} ..."
    return UserError(given, f"{wrong}: {said}{_place(error)}", "Fix it there; --debug shows the traceback.")


def _place(error: BaseException) -> str:
    """Where the user's own code stood last: the deepest frame outside the installed packages."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"\n  at {error.filename}:{error.lineno}: {(error.text or '').strip()}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    if not frames:
        return ""
    last = frames[-1]
    line = last.line or linecache.getline(last.filename, last.lineno or 0)
    return f"\n  at {last.filename}:{last.lineno}: {line.strip()}"


def _is_users(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    return not _installed(path) and _OURS not in path.parents


def _installed(path: Path) -> bool:
    places = sysconfig.get_paths()
    roots = {Path(places[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return bool(roots & set(path.parents)) or "site-packages" in path.parts or "dist-packages" in path.parts


def is_local(name: str) -> bool:
    """Whether a worker cannot import module ``name``: it lives in the user's files, or is ours but must ship."""
    if name.startswith(_BY_VALUE_OF_OURS):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return bool(file) and name != "__main__" and _is_users(str(file))


@contextmanager
def by_value(model: Any) -> Iterator[None]:
    """While it holds, cloudpickle writes the code of ``model``'s local classes into the pickle.

    Modules beside them count too, since methods refer to helpers there.
    """
    import cloudpickle

    classes = {cls for part in model.modules() for cls in type(part).__mro__}
    owners = {cls.__module__ for cls in classes if is_local(cls.__module__)}
    folders = {Path(str(sys.modules[name].__file__)).parent for name in owners if not name.startswith("ironlaw.")}
    beside = {
        name
        for name, module in list(sys.modules.items())
        if folders and is_local(name) and folders & set(Path(str(module.__file__)).parents)
    }
    modules = [sys.modules[name] for name in sorted(owners | beside)]
    fresh = [m for m in modules if m.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for module in fresh:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in fresh:
            cloudpickle.unregister_pickle_by_value(module)
