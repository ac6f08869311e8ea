"""From what ``evaluate`` passes to arrays, and from arrays back to what it expects of the model.

The user's function calls ``predict`` as it would call the model: tensors or arrays, by position or by keyword,
and reads logits from a tensor, a dictionary or a Hugging Face output. Workers know arrays only. This
object, kept in the parent, is the translation; refused are arguments that are no tensors and names that the model
was not given in its example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.records import UserError

Array = NDArray[Any]
PLAIN = (type(None), str, int, float, bool)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuild:
    """``names`` and ``dtypes`` of the inputs; ``structure`` is the torch pytree spec of the outputs.

    ``constants`` are the leaves that are no tensors (position among all leaves, value). Without a
    structure one output comes back as it is, several as a tuple.
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    structure: Any = None
    constants: tuple[tuple[int, Any], ...] = ()

    def inputs_to_arrays(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Array]:
        """The arrays of one call, in the order of ``names``.

        Numbers are cast where that stays within their kind (float64 to float32). Raises UserError for missing,
        unknown or doubled names, for what is not a tensor, and for dtypes of another kind.
        """
        given = self._bind(list(args), dict(kwargs or {}))
        return [self._array(name, given[name], dtype) for name, dtype in zip(self.names, self.dtypes, strict=True)]

    def outputs_from_arrays(self, arrays: Sequence[Array], like: Any) -> Any:
        """What the model would return: tensors when ``like`` (any of the inputs) is one, else arrays."""
        leaves: list[Any] = list(arrays)
        if holds_tensors(like):
            import torch

            leaves = [torch.from_numpy(np.array(a, copy=True, order="C")) for a in arrays]
        for index, value in self.constants:
            leaves.insert(index, value)
        if self.structure is None:
            return leaves[0] if len(leaves) == 1 else tuple(leaves)
        from torch.utils import _pytree as pytree

        return pytree.tree_unflatten(leaves, self.structure)

    def _bind(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) == 1 and isinstance(args[0], Mapping):
            kwargs, args = {**args[0], **kwargs}, []
        elif len(args) == 1 and isinstance(args[0], tuple | list) and len(args[0]) == len(self.names):
            args = list(args[0])
        given = dict(zip(self.names, args, strict=False))
        unknown = sorted(set(kwargs) - set(self.names))
        doubled = sorted(set(kwargs) & set(given))
        given.update(kwargs)
        missing = [name for name in self.names if name not in given]
        if len(args) > len(self.names) or unknown or doubled or missing:
            what = [f"{len(args)} inputs by position"] if len(args) > len(self.names) else []
            what += [f"unknown {unknown}"] if unknown else []
            what += [f"{doubled} twice"] if doubled else []
            what += [f"without {missing}"] if missing else []
            raise UserError(
                "predict", f"called with {', '.join(what)}", f"It takes what the example has: {', '.join(self.names)}."
            )
        return given

    @staticmethod
    def _array(name: str, value: Any, dtype: str) -> Array:
        array = to_array(value, f"input {name!r}")
        if array.dtype.name == dtype:
            return array
        if not np.can_cast(array.dtype, dtype, casting="same_kind"):
            raise UserError(
                f"input {name!r}", f"is {array.dtype.name}, the example is {dtype}", "Convert it before predict."
            )
        return array.astype(dtype)


def holds_tensors(value: Any) -> bool:
    """Whether a torch tensor is in ``value`` (or in its first element)."""
    if isinstance(value, Mapping):
        return any(holds_tensors(v) for v in value.values())
    if isinstance(value, tuple | list):
        return any(holds_tensors(v) for v in value)
    return hasattr(value, "detach")


def to_array(value: Any, given: str) -> Array:
    """A tensor or array as a contiguous array; the dtype is kept. Raises UserError for anything else."""
    if hasattr(value, "detach"):
        if str(value.dtype) == "torch.bfloat16":
            raise UserError(given, "is bfloat16, which arrays do not have", "Give float32; precision is a lever.")
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray | np.generic):
        raise UserError(given, f"is {type(value).__name__}, wanted a tensor or an array", "Give tensors only.")
    if value.dtype == object or value.dtype.kind in "USV":
        raise UserError(given, f"has dtype {value.dtype}", "Give numbers.")
    return np.ascontiguousarray(value).reshape(value.shape)
