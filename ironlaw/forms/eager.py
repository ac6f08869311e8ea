"""The eager form: an ``nn.Module`` pickled by value into our own private store.

Why a pickle: it is the only form that keeps any Python module whole. It is read from ironlaw's
store and from artefacts that the user ships, nowhere else; model files from elsewhere are never
unpickled here. Classes from modules that are not installed packages (the user's own file) are
pickled by value, so that the file loads where that file is not.
"""

from __future__ import annotations

import pickle
import sys
import sysconfig
from pathlib import Path
from typing import Any

NAME = "model.pkl"


def load(path: Path) -> Any:
    """The module in evaluation mode; ``path`` must be a file that ironlaw wrote."""
    with path.open("rb") as stream:
        module = pickle.load(stream)
    return module.eval()


def save(module: Any, path: Path) -> None:
    """Pickle ``module`` so that it loads with torch and cloudpickle alone."""
    import cloudpickle

    own = sorted({type(part).__module__ for part in module.modules()} - {"__main__"})
    by_value = [sys.modules[name] for name in own if name in sys.modules and not _installed(name)]
    for source in by_value:
        cloudpickle.register_pickle_by_value(source)
    try:
        path.write_bytes(cloudpickle.dumps(module))
    finally:
        for source in by_value:
            cloudpickle.unregister_pickle_by_value(source)


def _installed(name: str) -> bool:
    """Whether a module comes from an installed package that a reader can be asked to have; ironlaw is not one."""
    if name.partition(".")[0] == "ironlaw":
        return False
    file = getattr(sys.modules[name], "__file__", None)
    roots = {Path(sysconfig.get_paths()[key]).resolve() for key in ("purelib", "platlib", "stdlib")}
    return file is None or any(Path(file).resolve().is_relative_to(root) for root in roots)
