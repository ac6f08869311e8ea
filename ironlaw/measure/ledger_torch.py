"""The ledger of one call of torch code: FLOPs, bytes as an interval, dispatches, by operator, shape and dtype.

Why below autograd, under a ``TorchDispatchMode``: it sees what the CPU is asked to do, whatever the model is
(eager, exported, with Python control flow), and works on fake tensors, so that a model larger than memory
can be counted. An active mode changes how torch executes, so that nothing is ever timed here.

``bytes_high`` is every operand of every call; ``bytes_low`` what must cross memory when the last-level cache
keeps what it can (``ledger_cache``), from a cold start: weights and inputs once, and what does not fit.
Views move nothing. It refuses to guess: an operator without a formula has ``flops`` None.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ironlaw.measure import kinds
from ironlaw.measure.kernel_workspace import repaired
from ironlaw.measure.ledger_cache import CacheModel, Touched
from ironlaw.measure.ledger_flops import flops, registered_bytes, registered_kind
from ironlaw.measure.operands import tensors
from ironlaw.measure.profile_torch import shapes_text
from ironlaw.records import Ledger, Op

_WRITES_ONLY = frozenset({"fill", "zero", "copy", "normal", "uniform", "bernoulli", "exponential", "random"})
_LOOKUPS = frozenset({"embedding", "index_select", "gather", "index", "take", "_embedding_bag", "embedding_bag"})
_SHORT = {"qint8": "int8", "quint8": "int8"}


def count(
    call: Callable[[], object],
    *,
    batch: int,
    weights: Iterable[Any] = (),
    cache_bytes: int | None = None,
    source: str = "torch",
) -> Ledger:
    """What ``call`` does, gradients off. ``weights`` are the tensors whose reads are weight traffic.

    ``cache_bytes`` is the last-level cache; None counts only first touches. Whatever ``call`` raises goes through.
    """
    import torch

    counter = Counter(weights, cache_bytes)
    with torch.no_grad(), counter.mode():
        call()
    return Ledger(ops=counter.take(), batch=batch, source=source)


def count_module(
    module: Any, inputs: Sequence[Any], *, batch: int, cache_bytes: int | None = None, source: str = "torch"
) -> Ledger:
    """One forward of a module on these positional inputs; its parameters and buffers are the weights."""
    held = [*module.parameters(), *module.buffers()] if hasattr(module, "parameters") else []
    return count(lambda: module(*inputs), batch=batch, weights=held, cache_bytes=cache_bytes, source=source)


def count_on_fakes(
    module: Any, inputs: Sequence[Any], *, batch: int, cache_bytes: int | None = None, source: str = "torch (fake)"
) -> Ledger:
    """As :func:`count_module`, but nothing is computed: shapes only, so that memory does not limit the model.

    The module may be built on the meta device; it is counted as the CPU would run it.

    Raises what torch raises where the values of a tensor decide the control flow.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.func import functional_call

    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with FakeTensorMode(allow_non_fake_inputs=True) as fakes:
        shadows = {name: _fake(fakes, tensor) for name, tensor in held.items()}
        faked = tuple(fakes.from_tensor(one) for one in inputs)
        return count(
            lambda: functional_call(module, shadows, faked),
            batch=batch,
            weights=shadows.values(),
            cache_bytes=cache_bytes,
            source=source,
        )


def _fake(fakes: Any, tensor: Any) -> Any:
    import torch

    if tensor.device.type == "meta":
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return fakes.from_tensor(tensor)


@dataclass(slots=True)
class _Sum:
    kind: str
    calls: int = 0
    flops: float | None = 0.0
    low: float = 0.0
    high: float = 0.0
    weights: float = 0.0


class Counter:
    """Adds up the calls made under :meth:`mode`. Buffers are known by storage, so that views and updates meet."""

    def __init__(self, weights: Iterable[Any], cache_bytes: int | None) -> None:
        self._weights = {_storage(one) for one in weights}
        self._cache = CacheModel(cache_bytes)
        self._touched: dict[Hashable, Touched] = {}
        self._sums: dict[tuple[str, str, str], _Sum] = {}

    def add(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        full = func._schema.name
        name = kinds.aten_name(full) if full.startswith(("aten::", "quantized::")) else full
        kind = registered_kind(full) or _kind(func, name, args)
        operands = [*tensors(args), *tensors(kwargs)]
        self._free_dead()
        low, high, weights = (0.0, 0.0, 0.0) if kind == "view" else self._traffic(func, name, args, kwargs, out)
        said = registered_bytes(full, args, kwargs, out)
        if said is not None:
            low, high, weights = said, said, min(weights, said)
        key = (name, shapes_text(_plain_shapes(args)), _dtype(operands, out))
        total = self._sums.setdefault(key, _Sum(kind))
        count = flops(func, kind, args, kwargs, out)
        total.calls += 1
        total.flops = None if count is None or total.flops is None else total.flops + count
        total.low, total.high, total.weights = total.low + low, total.high + high, total.weights + weights

    def mode(self) -> AbstractContextManager[Any]:
        """The dispatch mode under which calls are counted."""
        return _mode(self)

    def take(self) -> tuple[Op, ...]:
        """The operators since the last time; the cache keeps what it holds."""
        sums, self._sums = self._sums, {}
        return tuple(
            Op(
                name=name,
                kind=total.kind,
                calls=total.calls,
                flops=total.flops,
                bytes_low=total.low,
                bytes_high=total.high,
                dtype=dtype,
                shape=shape,
                weights_bytes=total.weights,
            )
            for (name, shape, dtype), total in sums.items()
        )

    def _traffic(
        self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], out: Any
    ) -> tuple[float, float, float]:
        written = _written(func, args, kwargs)
        low = high = weights = 0.0
        plain = name.strip("_")
        for position, tensor in enumerate([*tensors(args), *tensors(kwargs)]):
            if plain in _WRITES_ONLY and any(tensor is one for one in written):
                continue
            size = _nbytes(tensor)
            if position == 0 and (name in _LOOKUPS or plain in _LOOKUPS):
                size = min(size, _looked_up(name, args, out))
            low += self._read(tensor, size)
            high += size
            weights += size if _storage(tensor) in self._weights else 0.0
        known = {_storage(one) for one in written}
        for tensor in [*written, *(one for one in tensors(out) if _storage(one) not in known)]:
            size = _nbytes(tensor)
            key = _storage(tensor)
            self._extent(key).add(*_span(tensor, size))
            low += self._cache.write(key, size)
            high += size
        return low, high, weights

    def _read(self, tensor: Any, size: float) -> float:
        key = _storage(tensor)
        start, end = _span(tensor, size)
        first = min(size, float(self._extent(key).add(start, end)))
        return self._cache.read(key, size, first=first)

    def _extent(self, key: Hashable) -> Touched:
        return self._touched.setdefault(key, Touched())

    def _free_dead(self) -> None:
        for key in [key for key in self._touched if hasattr(key, "expired") and key.expired()]:
            self._cache.forget(key)
            del self._touched[key]


def _mode(counter: Counter) -> AbstractContextManager[Any]:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func.namespace in ("prim", "profiler"):
                return func(*args, **kwargs)
            if _is_composite(func) and registered_kind(func._schema.name) is None:
                with self:
                    result = func.decompose(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            out = repaired(func, args, func(*args, **kwargs))
            counter.add(func, args, kwargs, out)
            return out

    return Counting()


def _is_composite(func: Any) -> bool:
    import torch

    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


# ---------------------------------------------------------------- facts of a call


def _kind(func: Any, name: str, args: Sequence[Any]) -> str:
    kind = kinds.aten_kind(func._schema.name)
    if kind == "conv":
        return _conv_kind(name, args)
    aliases = [one.alias_info for one in func._schema.returns if one.alias_info is not None]
    if kind == "other" and aliases and not any(alias.is_write for alias in aliases):
        return "view"
    return kind


def _conv_kind(name: str, args: Sequence[Any]) -> str:
    if name == "convolution_backward":
        return _conv_kind("convolution", [*args[1:3], None, *args[4:10]])
    if name not in ("convolution", "_convolution", "convolution_overrideable", "mkldnn_convolution"):
        return "conv"
    weight, groups = args[1], args[6] if name == "mkldnn_convolution" else args[8]
    transposed = name != "mkldnn_convolution" and bool(args[6])
    per_group = weight.shape[0] // groups if transposed else weight.shape[1]
    return kinds.conv_kind(groups, per_group)


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    found = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if argument.name == "grads":  # fused optimisers: scaled in place only where a gradient scaler is given
            continue
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        found += tensors(value)
    return found


def _looked_up(name: str, args: Sequence[Any], out: Any) -> float:
    """Bytes read from a table: the rows asked for, not all of it."""
    if "embedding_bag" in name:
        return float(args[1].numel() * args[0].shape[1] * args[0].element_size())
    return sum(_nbytes(one) for one in tensors(out)[:1])


def _plain_shapes(args: Sequence[Any]) -> list[Sequence[int]]:
    return [tuple(one.shape) for one in args if hasattr(one, "shape") and hasattr(one, "dtype")]


def _dtype(operands: list[Any], out: Any) -> str:
    found = operands or tensors(out)
    top = next((one for one in found if one.is_floating_point() or one.is_complex()), found[0] if found else None)
    text = str(top.dtype).removeprefix("torch.") if top is not None else "float32"
    return _SHORT.get(text, text)


def _nbytes(tensor: Any) -> float:
    """Bytes that differ: an expanded axis is stored once, and of a sparse tensor what is there."""
    if _is_sparse(tensor):
        return _nbytes(tensor._indices()) + _nbytes(tensor._values())
    if _is_strided(tensor):
        size = 1
        for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
            size *= length if stride else min(1, length)
        return float(size * tensor.element_size())
    return float(tensor.numel() * tensor.element_size())


def _span(tensor: Any, size: float) -> tuple[int, int]:
    """The byte range of a storage that a tensor lies in, at least ``size`` long."""
    if not _is_strided(tensor) or tensor.numel() == 0:
        return 0, int(size)
    item = tensor.element_size()
    start = tensor.storage_offset() * item
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + max((last + 1) * item, int(size))


def _is_strided(tensor: Any) -> bool:
    import torch

    return bool(tensor.layout == torch.strided)


def _is_sparse(tensor: Any) -> bool:
    import torch

    return bool(tensor.layout == torch.sparse_coo)


@dataclass(frozen=True, slots=True)
class _Opaque:
    """Stands for the storage of a tensor that shows none; compares with storages, which have a ``cdata``."""

    cdata: int


def _storage(tensor: Any) -> Hashable:
    """The storage, held weakly, so that its address is not reused while it is a key; opaque tensors by identity.

    A sparse tensor is known by its values.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    if _is_sparse(tensor):
        return _storage(tensor._values())
    if not _is_strided(tensor):
        return _Opaque(id(tensor))
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-any-return]
