"""The content address of a workload: equal for equal models in any process, and of nothing else.

Pickle bytes will not do (they hold memo order, paths and object identities), so the address is taken over
what decides the outputs: every weight and buffer, the tree of modules with their plain attributes, the source
of the classes that are not installed packages and of the functions beside them that they call, the
structure of inputs and outputs, the example and the calibration batches. Versions of installed packages
are not in it: they are in the machine's identity, which every key holds too.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.workloads.source import is_local

Array = NDArray[Any]
_PLAIN = (type(None), str, int, float, bool)


class Hash:
    """sha256 over labelled pieces, each with its length, so that no two sequences collide by joining."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def text(self, label: str, value: str) -> None:
        self._piece(label, value.encode())

    def array(self, label: str, value: Array) -> None:
        self._piece(label, f"{value.dtype.str}{value.shape}".encode())
        self._piece("data", np.ascontiguousarray(value).tobytes())

    def raw(self, label: str, value: bytes) -> None:
        self._piece(label, value)

    def hex(self) -> str:
        return self._sha.hexdigest()

    def _piece(self, label: str, value: bytes) -> None:
        self._sha.update(f"{label}:{len(value)}:".encode())
        self._sha.update(value)


def digest_module(model: Any) -> str:
    """The address of a torch module: weights, structure and the sources of local code."""
    found = Hash()
    for name, part in model.named_modules():
        cls = type(part)
        found.text("module", f"{name} {_class_name(cls)}")
        found.text("extra", part.extra_repr())
        found.text("plain", json.dumps(_plain(vars(part)), sort_keys=True))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found.text("tensor", f"{name} {tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}")
        found.raw("bytes", _bytes(tensor))
    for key, text in sorted(_sources(type(part) for part in model.modules()).items()):
        found.text(key, text)
    return found.hex()


def digest_workload(model: str, facts: Mapping[str, Any], batches: Sequence[Sequence[Array]]) -> str:
    """The address of a snapshot: its model's, facts (names, shapes, structure) and arrays in order."""
    found = Hash()
    found.text("model", model)
    found.text("facts", json.dumps(facts, sort_keys=True))
    for arrays in batches:
        found.text("batch", str(len(arrays)))
        for array in arrays:
            found.array("array", array)
    return found.hex()


def _class_name(cls: Any) -> str:
    """Private module names hold a hash of a path; the class is the same wherever its file lies."""
    return cls.__qualname__ if cls.__module__.startswith("_ironlaw_") else f"{cls.__module__}.{cls.__qualname__}"


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    skipped = ("_parameters", "_buffers", "_modules", "training")
    found = {k: _simplify(v) for k, v in attributes.items() if k not in skipped and not k.endswith("_hooks")}
    return {k: v for k, v in found.items() if v is not None}


def _simplify(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_simplify(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _simplify(v) for k, v in value.items()}
    if hasattr(value, "detach") or isinstance(value, np.ndarray):
        raw = _bytes(value) if hasattr(value, "detach") else np.ascontiguousarray(value).tobytes()
        return hashlib.sha256(raw).hexdigest()
    if inspect.isroutine(value):
        return getattr(value, "__qualname__", None)
    return None


def _bytes(tensor: Any) -> bytes:
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _sources(classes: Iterable[type]) -> dict[str, str]:
    """Source by name of every local class (and its local bases), and of local functions that they reach."""
    found: dict[str, str] = {}
    todo: list[Any] = [cls for one in set(classes) for cls in one.__mro__]
    while todo:
        item = todo.pop()
        if not is_local(item.__module__) and item.__module__ != "__main__":
            continue
        key = f"source {_class_name(item)}"
        if key in found:
            continue
        found[key] = _source(item)
        for name, thing in _reached(item):
            if isinstance(thing, _PLAIN):
                found[f"{key} {name}"] = repr(thing)
            elif isinstance(thing, FunctionType | type):
                todo.append(thing)
    return found


def _source(item: Any) -> str:
    try:
        return inspect.getsource(item)
    except (OSError, TypeError):
        codes = [item.__code__] if isinstance(item, FunctionType) else [f.__code__ for f in _methods(item)]
        return " ".join(f"{code.co_name} {code.co_code.hex()} {_constants(code)}" for code in codes)


def _constants(code: CodeType) -> str:
    return repr([c for c in code.co_consts if not isinstance(c, CodeType)])


def _methods(cls: type) -> list[FunctionType]:
    return [f for f in vars(cls).values() if isinstance(f, FunctionType)]


def _reached(item: Any) -> list[tuple[str, Any]]:
    """What the code of ``item`` names in its module: helpers, classes, constants."""
    functions = [item] if isinstance(item, FunctionType) else _methods(item)
    module = vars(sys.modules[item.__module__]) if item.__module__ in sys.modules else {}
    names = {name for function in functions for name in function.__code__.co_names}
    return [(name, module[name]) for name in sorted(names) if name in module]
