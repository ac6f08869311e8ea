"""The operators on which eager torch is calibrated: one maker a kind, on shapes that are nobody's workload.

Each operator that a kind stands for is timed by itself, from a few elements to more than an inner cache holds, since
their fixed costs differ several times over. Convolutions and products span the small ones that networks have most of,
and are also made channels-last and as a compiler calls them (weights packed once), so that those levers are predicted
from kernels. Products come cold as well: over weights that no cache kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ironlaw.rates import CHANNELS_LAST, EAGER, PACKED
from ironlaw.shapes import COLD

_COLD_ELEMENTS = 24_000_000
"""Of the buffer through which cold weights rotate: 96 MB in float32, more than the last-level caches of hosts share."""
_COLD_LEAST = 60_000
# batch, channels in, channels out, side, kernel, stride; the first is tiny
_CONVOLUTIONS = (
    (1, 4, 4, 4, 1, 1), (1, 3, 32, 112, 7, 2), (1, 16, 32, 56, 3, 1), (1, 64, 64, 28, 3, 1), (1, 48, 192, 28, 1, 1),
    (1, 128, 128, 14, 3, 2), (1, 240, 80, 14, 1, 1), (1, 320, 640, 7, 1, 1), (8, 32, 64, 28, 3, 1),
    (8, 96, 24, 28, 1, 1), (1, 24, 48, 40, 5, 2), (16, 1, 16, 28, 3, 1), (1, 8, 8, 14, 3, 1), (1, 16, 32, 10, 3, 1),
    (2, 12, 24, 20, 5, 1), (1, 32, 16, 32, 1, 1), (4, 3, 16, 32, 3, 1), (1, 64, 128, 7, 3, 1), (2, 64, 96, 48, 3, 1),
    (1, 16, 96, 12, 1, 1),
)  # fmt: skip
# batch, channels, side, kernel, stride
_DEPTHWISE = (
    (1, 4, 4, 3, 1), (1, 32, 112, 3, 1), (1, 96, 56, 3, 2), (1, 144, 56, 3, 1), (1, 240, 28, 5, 1),
    (1, 480, 14, 3, 1), (1, 672, 14, 5, 2), (1, 960, 7, 5, 1), (8, 64, 28, 3, 1), (8, 192, 14, 5, 1),
    (1, 32, 16, 3, 1), (1, 64, 32, 3, 1),
)  # fmt: skip
# rows, inner, columns
_PRODUCTS = (
    (1, 4, 4), (1, 512, 1000), (1, 1280, 1000), (4, 784, 300), (16, 384, 384), (32, 768, 3072), (64, 1024, 1024),
    (128, 384, 1536), (128, 1536, 384), (256, 512, 512), (512, 64, 512), (100, 300, 100), (1, 100, 50), (1, 256, 256),
    (2, 1024, 1024), (4, 512, 2048), (8, 400, 400), (16, 64, 64), (16, 1024, 512), (50, 128, 384), (200, 32, 48),
    (2, 64, 96), (6, 200, 200), (40, 768, 768),
)  # fmt: skip
# batch, heads, tokens, width of a head
_ATTENTIONS = (
    (1, 1, 4, 4), (1, 12, 32, 32), (1, 12, 128, 32), (4, 12, 128, 32), (1, 8, 256, 64), (1, 16, 64, 64),
    (8, 6, 64, 64), (1, 12, 384, 64), (2, 4, 512, 32), (1, 2, 16, 32),
)  # fmt: skip
# batch, steps, width in, hidden
_RECURRENT = (
    (1, 1, 4, 4), (1, 32, 64, 64), (8, 32, 64, 128), (1, 100, 12, 96), (16, 50, 40, 64), (4, 16, 256, 256),
    (1, 20, 128, 512), (32, 12, 32, 32), (2, 64, 80, 160),
)  # fmt: skip
# what a softmax runs over
_ATTENDED = (
    (1, 4), (1, 1000), (32, 1000), (12, 128, 128), (48, 128, 128), (8, 64, 64), (4, 32, 32), (256, 256), (6, 197, 197),
)  # fmt: skip
_MAPS = ((1, 2, 2, 2), (1, 16, 14, 14), (1, 24, 40, 40), (1, 64, 56, 56), (8, 64, 28, 28), (16, 32, 56, 56))
_ROWS = ((2, 8), (32, 384), (128, 768), (512, 384), (1024, 1536))


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one shape: ``work`` is its FLOPs (an FMA is two) or the bytes of its operands; ``weights`` the
    stored elements that it uses; ``op`` its name in a ledger, or ``cold``; a recurrent layer has ``steps``."""

    call: Callable[[], Any]
    work: float
    op: str
    weights: float = 0.0
    steps: int = 1


Maker = Callable[[str], Iterator[Case]]


def makers() -> dict[str, dict[str, Maker]]:
    """By variant of the target and kind; the first case of a kind is so small that it is all fixed cost."""
    plain: dict[str, Maker] = {
        "conv": _conv, "depthwise": _depthwise, "matmul": _matmul, "attention": _attention,
        "elementwise": _elementwise, "norm": _norm, "pool": _pool, "reduce": _reduce, "softmax": _softmax,
        "embedding": _embedding, "copy": _copy, "recurrent": _recurrent,
    }  # fmt: skip
    if not _has_onednn():
        return {EAGER: plain}
    images: dict[str, Maker] = {
        "conv": partial(_conv, how=CHANNELS_LAST),
        "depthwise": partial(_depthwise, how=CHANNELS_LAST),
    }
    packed: dict[str, Maker] = {
        "conv": partial(_conv, how=PACKED),
        "depthwise": partial(_depthwise, how=PACKED),
        "matmul": partial(_matmul, how=PACKED),
    }
    return {EAGER: plain, CHANNELS_LAST: images, PACKED: packed}


def int8_products(_: str) -> Iterator[Case]:
    """Products of int8 matrices into int32."""
    import torch

    for m, k, n in (
        (32, 16, 16), (64, 384, 384), (128, 384, 1536), (128, 1536, 384), (256, 512, 512), (512, 512, 512),
        (64, 1024, 1024), (32, 784, 512), (100, 304, 128),
    ):  # fmt: skip
        x = torch.randint(-100, 100, (m, k), dtype=torch.int8)
        w = torch.randint(-100, 100, (k, n), dtype=torch.int8)
        yield Case(partial(torch._int_mm, x, w), 2.0 * m * k * n, "int_mm", k * n)


def _random(dtype: str, *shape: int) -> Any:
    import torch

    return torch.randn(*shape, dtype=torch.float32).to(getattr(torch, dtype))


def _bytes(*arrays: Any) -> float:
    return float(sum(a.numel() * a.element_size() for a in arrays))


def _has_onednn() -> bool:
    import torch

    return bool(torch.backends.mkldnn.is_available())


# ---------------------------------------------------------------- arithmetic


def _conv(dtype: str, how: str = EAGER) -> Iterator[Case]:
    for n, cin, cout, size, k, stride in _CONVOLUTIONS:
        x, w = _random(dtype, n, cin, size, size), _random(dtype, cout, cin, k, k)
        yield _convolution(x, w, _random(dtype, cout), stride, 1, how)


def _depthwise(dtype: str, how: str = EAGER) -> Iterator[Case]:
    for n, c, size, k, stride in _DEPTHWISE:
        x, w = _random(dtype, n, c, size, size), _random(dtype, c, 1, k, k)
        yield _convolution(x, w, _random(dtype, c), stride, c, how)


def _convolution(x: Any, w: Any, b: Any, stride: int, groups: int, how: str) -> Case:
    """One convolution with the padding that keeps the side, as eager torch or a compiler calls it."""
    import torch
    import torch.nn.functional as F

    padding = w.shape[-1] // 2
    out = F.conv2d(x, w, b, stride=stride, padding=padding, groups=groups)
    work, weights = 2.0 * out.numel() * w[0].numel(), w.numel()
    if how != EAGER:
        x, w = x.contiguous(memory_format=torch.channels_last), w.contiguous(memory_format=torch.channels_last)
    call = partial(F.conv2d, x, w, b, stride=stride, padding=padding, groups=groups)
    if how == PACKED:
        window = ([padding] * 2, [stride] * 2, [1, 1], groups)
        packed = torch.ops.mkldnn._reorder_convolution_weight(w, *window, list(x.shape))
        call = partial(torch.ops.mkldnn._convolution_pointwise, x, packed, b, *window, "none", [], "")
    return Case(call, work, "convolution", weights)


def _matmul(dtype: str, how: str = EAGER) -> Iterator[Case]:
    for m, k, n in _PRODUCTS:
        x, w, b = _random(dtype, m, k), _random(dtype, n, k), _random(dtype, n)
        yield Case(_linear(x, w, b, how), 2.0 * m * k * n, "addmm", k * n)
    if how == EAGER:
        yield from _cold(dtype)


def _linear(x: Any, w: Any, b: Any, how: str) -> Callable[[], Any]:
    import torch
    import torch.nn.functional as F

    if how != PACKED:
        return partial(F.linear, x, w, b)
    packed = torch.ops.mkldnn._reorder_linear_weight(w, x.shape[0])
    return partial(torch.ops.mkldnn._linear_pointwise, x, packed, b, "none", [], "")


def _cold(dtype: str) -> Iterator[Case]:
    """The larger products with other weights at every call, until the first have left every cache."""
    store = _random(dtype, _COLD_ELEMENTS)
    for m, k, n in _PRODUCTS:
        if k * n >= _COLD_LEAST:
            x, b = _random(dtype, m, k), _random(dtype, n)
            weights = [store[i * k * n : (i + 1) * k * n].view(n, k) for i in range(_COLD_ELEMENTS // (k * n))]
            yield Case(_Rotating(x, weights, b), 2.0 * m * k * n, COLD, k * n)


class _Rotating:
    """A product with the next of the weights at each call."""

    def __init__(self, x: Any, weights: list[Any], bias: Any) -> None:
        self.x, self.weights, self.bias, self.next = x, weights, bias, 0

    def __call__(self) -> Any:
        import torch.nn.functional as F

        self.next = (self.next + 1) % len(self.weights)
        return F.linear(self.x, self.weights[self.next], self.bias)


def _attention(dtype: str) -> Iterator[Case]:
    import torch.nn.functional as F

    for n, heads, length, width in _ATTENTIONS:
        q, k, v = (_random(dtype, n, heads, length, width) for _ in range(3))
        work = 4.0 * n * heads * length * length * width
        yield Case(partial(F.scaled_dot_product_attention, q, k, v), work, "attention")


def _recurrent(dtype: str) -> Iterator[Case]:
    import torch

    for name, gates in (("LSTM", 4), ("GRU", 3)):
        for n, steps, inside, width in _RECURRENT:
            cell = getattr(torch.nn, name)(inside, width, batch_first=True).to(getattr(torch, dtype)).eval()
            weights = gates * width * (inside + width)
            call = partial(cell, _random(dtype, n, steps, inside))
            yield Case(call, 2.0 * n * steps * weights, name.lower(), weights, steps)


# ---------------------------------------------------------------- what moves bytes


def _elementwise(dtype: str) -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    unary = {
        "relu": torch.relu, "gelu": F.gelu, "silu": F.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
        "hardtanh": F.relu6, "hardswish": F.hardswish,
    }  # fmt: skip
    binary = {"add": torch.add, "mul": torch.mul}
    for shape in _MAPS:
        x, y = _random(dtype, *shape), _random(dtype, *shape)
        for name, one in unary.items():
            yield Case(partial(one, x), 2 * _bytes(x), name)
        for name, two in binary.items():
            yield Case(partial(two, x, y), 3 * _bytes(x), name)


def _norm(dtype: str) -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for n, c, h, w in _MAPS:
        x, scale = _random(dtype, n, c, h, w), torch.ones(c, dtype=getattr(torch, dtype))
        mean = torch.zeros(c, dtype=scale.dtype)
        yield Case(partial(F.batch_norm, x, mean, scale, scale, mean), 2 * _bytes(x), "native_batch_norm")
    for rows, width in _ROWS:
        x, scale = _random(dtype, rows, width), torch.ones(width, dtype=getattr(torch, dtype))
        yield Case(partial(F.layer_norm, x, (width,), scale, scale), 2 * _bytes(x), "native_layer_norm")


def _pool(dtype: str) -> Iterator[Case]:
    import torch.nn.functional as F

    for shape in _MAPS:
        x = _random(dtype, *shape)
        yield Case(partial(F.max_pool2d, x, 2), 1.25 * _bytes(x), "max_pool2d_with_indices")
        yield Case(partial(F.avg_pool2d, x, 2), 1.25 * _bytes(x), "avg_pool2d")
        yield Case(partial(F.adaptive_max_pool2d, x, 1), _bytes(x), "adaptive_max_pool2d")


def _reduce(dtype: str) -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for shape in _MAPS:
        x = _random(dtype, *shape)
        yield Case(partial(F.adaptive_avg_pool2d, x, 1), _bytes(x), "mean")
        yield Case(partial(torch.sum, x, dim=-1), _bytes(x), "sum")


def _softmax(dtype: str) -> Iterator[Case]:
    import torch

    for shape in _ATTENDED:
        x = _random(dtype, *shape)
        yield Case(partial(torch.softmax, x, -1), 2 * _bytes(x), "softmax")


def _embedding(dtype: str) -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for rows, width, count in (
        (10, 4, 1), (30522, 384, 128), (30522, 384, 1024), (512, 384, 128), (1000, 64, 4096), (50000, 128, 512),
        (8192, 256, 64), (30522, 768, 256), (100, 32, 8192),
    ):  # fmt: skip
        table, index = _random(dtype, rows, width), torch.randint(0, rows, (count,))
        moved = 2.0 * count * width * table.element_size() + 8 * count
        yield Case(partial(F.embedding, index, table), moved, "embedding")


def _copy(dtype: str) -> Iterator[Case]:
    import torch

    for shape in _MAPS:
        x = _random(dtype, *shape)
        yield Case(x.clone, 2 * _bytes(x), "clone")
        yield Case(x.transpose(1, 3).contiguous, 2 * _bytes(x), "copy")
        yield Case(partial(torch.cat, [x, x], dim=1), 4 * _bytes(x), "cat")
        yield Case(partial(torch.stack, [x, x]), 4 * _bytes(x), "stack")
