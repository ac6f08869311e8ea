"""The tensors in the arguments and results of an operator."""

from __future__ import annotations

from typing import Any


def tensors(value: Any) -> list[Any]:
    """Every tensor in arguments or a result, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors(part)]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors(part)]
    return []


def numel(value: Any) -> float:
    """Elements of the first tensor; 0 where there is none."""
    found = tensors(value)
    return float(found[0].numel()) if found else 0.0


def numel_of_all(value: Any) -> float:
    """Elements of all tensors together."""
    return float(sum(tensor.numel() for tensor in tensors(value)))
