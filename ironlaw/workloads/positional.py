"""A model as every later step wants it: tensors in by position, one tensor or a tuple of tensors out.

Models that take keywords or return dictionaries, lists or objects are wrapped once, here, so that no export,
lever or target ever meets those shapes. Each arity has a ``forward`` with real parameters: exporters
read its signature, and ``*args`` would nest what they call the inputs. The module ships inside pickles by value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree


class Positional(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
    """Calls ``inner`` with ``names`` as keywords (None: by position) and keeps the tensors that it returns."""

    def __init__(self, inner: nn.Module, names: tuple[str, ...] | None) -> None:
        super().__init__()
        self.inner = inner
        self.names = names

    def run(self, *tensors: torch.Tensor) -> Any:
        """One tensor, or a tuple of the tensors among the leaves, in pytree order."""
        if self.names is None:
            outputs = self.inner(*tensors)
        else:
            outputs = self.inner(**dict(zip(self.names, tensors, strict=True)))
        found = tuple(leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor))
        return found[0] if len(found) == 1 else found


class _Of1(Positional):
    def forward(self, a: torch.Tensor) -> Any:
        return self.run(a)


class _Of2(Positional):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        return self.run(a, b)


class _Of3(Positional):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        return self.run(a, b, c)


class _Of4(Positional):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> Any:
        return self.run(a, b, c, d)


class _OfMany(Positional):
    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.run(*tensors)


def positional(inner: nn.Module, names: tuple[str, ...] | None, arity: int) -> Positional:
    """``inner`` wrapped for ``arity`` tensors."""
    return {1: _Of1, 2: _Of2, 3: _Of3, 4: _Of4}.get(arity, _OfMany)(inner, names)
