"""Reads the values of one call of a torch model: subnormals in results and weights, exact zeros in weights.

Why a dispatch mode and not hooks on modules: it sees what functions compute between modules, and a weight as the
kernel gets it, whatever mask was applied on the way. It refuses fp16: its subnormals cost nothing.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ironlaw.records import Pairs

SAMPLED = 1 << 16
"""Values looked at in one tensor: every n-th of a larger one."""
TURNS = 5
_LISTED = 64
_WEIGHT_AT = {"convolution": 1, "_convolution": 1, "mkldnn_convolution": 1, "linear": 1, "addmm": 2, "mm": 1}


@dataclass(slots=True)
class Values:
    """Sums over one call; ``zeros`` maps a weight to its zeros and its elements."""

    subnormal_weights: float
    values: int = 0
    subnormals: int = 0
    zeros: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def subnormal(self) -> float:
        return self.subnormals / self.values if self.values else 0.0

    @property
    def zero_share(self) -> float | None:
        elements = sum(size for _, size in self.zeros.values())
        return sum(count for count, _ in self.zeros.values()) / elements if elements else None

    def sparse(self) -> Pairs:
        """Weights with more zeros than values, the largest first."""
        mostly = [(name, count, size) for name, (count, size) in self.zeros.items() if 2 * count > size]
        return tuple((name, count / size) for name, count, size in sorted(mostly, key=lambda one: -one[2])[:_LISTED])


def values_of(module: Any, call: Callable[[], object]) -> Values:
    """Subnormals in results and zeros in weights during one eager call; compiled code runs as it was written."""
    import torch

    named = {tensor.data_ptr(): name for name, tensor in _tensors_of(module)}
    seen = Values(subnormal_weights=_subnormal_share(tensor for _, tensor in _tensors_of(module)))
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()
    with eager, torch.no_grad(), _reading(seen, named):
        call()
    return seen


def _reading(seen: Values, named: Mapping[int, str]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Reading(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if func.namespace != "prim" and not func.is_view:
                for tensor in _floats(out):
                    sample = _sample(tensor)
                    seen.values += sample.numel()
                    seen.subnormals += _subnormals(sample)
                _note_weight(seen, named, func._schema.name.removeprefix("aten::"), args)
            return out

    return Reading()


def _note_weight(seen: Values, named: Mapping[int, str], operator: str, args: Any) -> None:
    position = _WEIGHT_AT.get(operator)
    if position is None or len(args) <= position:
        return
    weight = args[position]
    name = named.get(weight.data_ptr(), f"{operator} {'x'.join(map(str, weight.shape))}")
    zeros, size = seen.zeros.get(name, (0, 0))
    seen.zeros[name] = (zeros + weight.numel() - int(weight.count_nonzero()), size + weight.numel())


def _tensors_of(module: Any) -> list[tuple[str, Any]]:
    if not hasattr(module, "named_parameters"):
        return []
    return [(n, t) for n, t in (*module.named_parameters(), *module.named_buffers()) if t.is_floating_point()]


def _subnormal_share(tensors: Iterable[Any]) -> float:
    samples = [_sample(tensor.detach()) for tensor in tensors if _readable(tensor)]
    values = sum(sample.numel() for sample in samples)
    return sum(_subnormals(sample) for sample in samples) / values if values else 0.0


def _floats(out: Any) -> Iterator[Any]:
    import torch

    for one in out if isinstance(out, tuple | list) else (out,):
        if isinstance(one, torch.Tensor) and _readable(one):
            yield one


def _readable(tensor: Any) -> bool:
    """Whether its subnormals cost anything: fp16's are ordinary numbers to the units that compute them."""
    import torch

    wide = tensor.dtype in (torch.float32, torch.float64, torch.bfloat16)
    return bool(wide and tensor.layout == torch.strided and tensor.numel() and tensor.device.type != "meta")


def _sample(tensor: Any) -> Any:
    """Up to :data:`SAMPLED` values, evenly over the tensor."""
    step = max(1, tensor.numel() // SAMPLED)
    if tensor.is_contiguous() or step == 1:
        return tensor.reshape(-1)[::step]
    return tensor.permute(sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))).reshape(-1)[::step]


def _subnormals(sample: Any) -> int:
    import torch

    size = sample.abs()
    return int(((size > 0) & (size < torch.finfo(sample.dtype).tiny)).count_nonzero())


def flushes_subnormals() -> bool:
    """Whether this thread computes zero where the result would be subnormal."""
    import torch

    return float(torch.full((1,), 1e-30) * 1e-10) == 0.0


def flushed_speedup(call: Callable[[], object]) -> float | None:
    """The best of a few calls on one thread over the best with subnormals flushed; None where they cannot be.

    On one thread, since the setting belongs to the thread that makes it.
    """
    import torch

    threads, plain, flushed = torch.get_num_threads(), list[float](), list[float]()
    torch.set_num_threads(1)
    try:
        for _ in range(TURNS):
            plain.append(_seconds(call))
            if not torch.set_flush_denormal(True):
                return None
            flushed.append(_seconds(call))
            torch.set_flush_denormal(False)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    return min(plain) / min(flushed)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
