"""What eager operators of each kind reach on calibration shapes, for the predictor.

Why shapes of our own: rates fitted on the workload would hide its residual. They span what networks
of all sizes use (1x1 to 7x7 convolutions, skinny and square products, images and token grids), warm and
one after the other; the rate is an interval over shapes, so that a kind whose kernels vary much predicts
with a wide interval. The fixed cost of a call comes from tiny shapes and is taken off the others.
It refuses fp16, whose rate here is the ceiling's business (emulated, it would take minutes).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ironlaw.measure.kinds import ARITHMETIC
from ironlaw.records import Interval, KernelRate

_DTYPES = ("float32", "bfloat16")
_MIN_CALLS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one shape: ``work`` is its FLOPs (an FMA is two) or the bytes of its operands."""

    call: Callable[[], Any]
    work: float


def rates(threads: int, seconds: float) -> tuple[KernelRate, ...]:
    """One rate per kind and dtype at ``threads`` intra-op threads, within about ``seconds``."""
    import torch

    jobs = [(kind, dtype) for kind in _MAKERS for dtype in _DTYPES] + [("matmul", "int8")]
    slice_s = seconds / len(jobs)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            return tuple(_rate(kind, dtype, threads, slice_s) for kind, dtype in jobs)
    finally:
        torch.set_num_threads(before)


def _rate(kind: str, dtype: str, threads: int, seconds: float) -> KernelRate:
    cases = list(_int8_products() if dtype == "int8" else _MAKERS[kind](dtype))
    each = seconds / len(cases)
    tiny, *rest = cases
    call_s = _seconds(tiny.call, each)
    found = sorted(case.work / max(_seconds(case.call, each) - call_s, 0.05 * call_s) for case in rest)
    low, high = (statistics.quantiles(found, n=10)[i] for i in (0, 8))
    return KernelRate(
        target="torch",
        kind=kind,
        dtype=dtype,
        threads=threads,
        unit="FLOP/s" if kind in ARITHMETIC else "B/s",
        rate=Interval(low=max(low, found[0]), value=statistics.median(found), high=min(high, found[-1])),
        call_s=call_s,
        shapes=len(found),
    )


def _seconds(call: Callable[[], Any], budget_s: float) -> float:
    """Median of warm calls within the budget; small ones are timed in blocks above the clock's cost."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    call()
    inner = max(1, min(1000, int(50e-6 / max(first, 1e-7))))
    samples: list[float] = []
    end = start + budget_s
    while len(samples) < _MIN_CALLS or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(inner):
            call()
        samples.append((time.perf_counter() - begin) / inner)
        if samples[-1] * inner > budget_s and len(samples) >= 2:
            break
    return statistics.median(samples)


def _random(dtype: str, *shape: int) -> Any:
    import torch

    return torch.randn(*shape, dtype=torch.float32).to(getattr(torch, dtype))


def _bytes(*arrays: Any) -> float:
    return float(sum(a.numel() * a.element_size() for a in arrays))


def _conv(dtype: str) -> Iterator[Case]:
    import torch.nn.functional as F

    shapes = (
        (1, 4, 4, 4, 1, 1), (1, 3, 32, 112, 7, 2), (1, 16, 32, 56, 3, 1), (1, 64, 64, 28, 3, 1), (1, 48, 192, 28, 1, 1),
        (1, 128, 128, 14, 3, 2), (1, 240, 80, 14, 1, 1), (1, 320, 640, 7, 1, 1), (8, 32, 64, 28, 3, 1),
        (8, 96, 24, 28, 1, 1), (1, 24, 48, 40, 5, 2), (16, 1, 16, 28, 3, 1),
    )  # fmt: skip
    for n, cin, cout, size, k, stride in shapes:
        x, w, b = _random(dtype, n, cin, size, size), _random(dtype, cout, cin, k, k), _random(dtype, cout)
        out = F.conv2d(x, w, b, stride=stride, padding=k // 2)
        yield Case(partial(F.conv2d, x, w, b, stride=stride, padding=k // 2), 2.0 * out.numel() * cin * k * k)


def _depthwise(dtype: str) -> Iterator[Case]:
    import torch.nn.functional as F

    shapes = (
        (1, 4, 4, 3, 1), (1, 32, 112, 3, 1), (1, 96, 56, 3, 2), (1, 144, 56, 3, 1), (1, 240, 28, 5, 1),
        (1, 480, 14, 3, 1), (1, 672, 14, 5, 2), (1, 960, 7, 5, 1), (8, 64, 28, 3, 1), (8, 192, 14, 5, 1),
    )  # fmt: skip
    for n, c, size, k, stride in shapes:
        x, w, b = _random(dtype, n, c, size, size), _random(dtype, c, 1, k, k), _random(dtype, c)
        out = F.conv2d(x, w, b, stride=stride, padding=k // 2, groups=c)
        yield Case(partial(F.conv2d, x, w, b, stride=stride, padding=k // 2, groups=c), 2.0 * out.numel() * k * k)


def _matmul(dtype: str) -> Iterator[Case]:
    import torch.nn.functional as F

    shapes = (
        (1, 4, 4), (1, 512, 1000), (1, 1280, 1000), (4, 784, 300), (16, 384, 384), (32, 768, 3072), (64, 1024, 1024),
        (128, 384, 1536), (128, 1536, 384), (256, 512, 512), (512, 64, 512), (100, 300, 100),
    )  # fmt: skip
    for m, k, n in shapes:
        x, w, b = _random(dtype, m, k), _random(dtype, n, k), _random(dtype, n)
        yield Case(partial(F.linear, x, w, b), 2.0 * m * k * n)


def _int8_products() -> Iterator[Case]:
    import torch

    for m, k, n in (
        (32, 16, 16), (64, 384, 384), (128, 384, 1536), (128, 1536, 384), (256, 512, 512), (512, 512, 512),
        (64, 1024, 1024), (32, 784, 512), (100, 304, 128),
    ):  # fmt: skip
        x = torch.randint(-100, 100, (m, k), dtype=torch.int8)
        w = torch.randint(-100, 100, (k, n), dtype=torch.int8)
        yield Case(partial(torch._int_mm, x, w), 2.0 * m * k * n)


def _attention(dtype: str) -> Iterator[Case]:
    import torch.nn.functional as F

    shapes = (
        (1, 1, 4, 4), (1, 12, 32, 32), (1, 12, 128, 32), (4, 12, 128, 32), (1, 8, 256, 64), (1, 16, 64, 64),
        (8, 6, 64, 64), (1, 12, 384, 64), (2, 4, 512, 32),
    )  # fmt: skip
    for n, heads, length, width in shapes:
        q, k, v = (_random(dtype, n, heads, length, width) for _ in range(3))
        yield Case(partial(F.scaled_dot_product_attention, q, k, v), 4.0 * n * heads * length * length * width)


_GRIDS = (
    (1, 2, 2, 2), (1, 32, 112, 112), (1, 64, 56, 56), (1, 144, 28, 28), (1, 480, 14, 14), (8, 64, 28, 28),
    (16, 16, 28, 28), (1, 1, 128, 384), (4, 1, 128, 1536), (1, 960, 7, 7),
)  # fmt: skip


def _elementwise(dtype: str) -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    kernels = (torch.relu, torch.relu, F.relu6, torch.sigmoid, F.hardswish, torch.relu, F.silu, torch.tanh, F.gelu)
    for shape, kernel in zip(_GRIDS, (*kernels, torch.relu), strict=True):
        x = _random(dtype, *shape)
        yield Case(partial(kernel, x), 2 * _bytes(x))
    for shape in _GRIDS[1:5]:
        x, y = _random(dtype, *shape), _random(dtype, *shape)
        yield Case(partial(torch.add, x, y), 3 * _bytes(x))


def _norm(dtype: str) -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for n, c, h, w in _GRIDS[:7]:
        x, scale = _random(dtype, n, c, h, w), torch.ones(c, dtype=getattr(torch, dtype))
        mean = torch.zeros(c, dtype=scale.dtype)
        yield Case(partial(F.batch_norm, x, mean, scale, scale, mean), 2 * _bytes(x))
    for rows, width in ((32, 384), (128, 384), (512, 384), (128, 768), (64, 1536)):
        x, scale = _random(dtype, rows, width), torch.ones(width, dtype=getattr(torch, dtype))
        yield Case(partial(F.layer_norm, x, (width,), scale, scale), 2 * _bytes(x))


def _pool(dtype: str) -> Iterator[Case]:
    import torch.nn.functional as F

    for shape in (*_GRIDS[:7], (1, 960, 7, 7)):
        x = _random(dtype, *shape)
        yield Case(partial(F.max_pool2d, x, 2), 1.25 * _bytes(x))
        if shape[1] > 2:
            yield Case(partial(F.adaptive_avg_pool2d, x, 1), _bytes(x))


def _reduce(dtype: str) -> Iterator[Case]:
    import torch

    for shape in _GRIDS:
        x = _random(dtype, *shape)
        yield Case(partial(torch.mean, x, dim=-1), _bytes(x))


def _softmax(dtype: str) -> Iterator[Case]:
    import torch

    shapes = (
        (1, 4),
        (1, 1000),
        (32, 1000),
        (12, 128, 128),
        (48, 128, 128),
        (8, 64, 64),
        (256, 100),
        (12, 384, 384),
        (4, 30522),
    )
    for shape in shapes:
        x = _random(dtype, *shape)
        yield Case(partial(torch.softmax, x, -1), 2 * _bytes(x))


def _embedding(dtype: str) -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for rows, width, count in (
        (10, 4, 1), (30522, 384, 128), (30522, 384, 1024), (512, 384, 128), (1000, 64, 4096), (50000, 128, 512),
        (8192, 256, 64), (30522, 768, 256), (100, 32, 8192),
    ):  # fmt: skip
        table, index = _random(dtype, rows, width), torch.randint(0, rows, (count,))
        yield Case(partial(F.embedding, index, table), 2.0 * count * width * table.element_size() + 8 * count)


def _copy(dtype: str) -> Iterator[Case]:
    import torch

    for shape in _GRIDS:
        x = _random(dtype, *shape)
        yield Case(x.clone, 2 * _bytes(x))
    for shape in _GRIDS[1:5]:
        x = _random(dtype, *shape)
        yield Case(x.transpose(1, 3).contiguous, 2 * _bytes(x))
        yield Case(partial(torch.cat, [x, x], dim=1), 4 * _bytes(x))


def _recurrent(dtype: str) -> Iterator[Case]:
    import torch

    for n, steps, inside, width in (
        (1, 1, 4, 4), (1, 32, 64, 64), (8, 32, 64, 128), (1, 100, 12, 96), (16, 50, 40, 64), (4, 16, 256, 256),
        (1, 20, 128, 512), (32, 12, 32, 32), (2, 64, 80, 160),
    ):  # fmt: skip
        cell = torch.nn.LSTM(inside, width, batch_first=True).to(getattr(torch, dtype)).eval()
        x = _random(dtype, n, steps, inside)
        yield Case(partial(cell, x), 2.0 * n * steps * 4 * width * (inside + width))


_MAKERS: dict[str, Callable[[str], Iterator[Case]]] = {
    "conv": _conv,
    "depthwise": _depthwise,
    "matmul": _matmul,
    "attention": _attention,
    "elementwise": _elementwise,
    "norm": _norm,
    "pool": _pool,
    "reduce": _reduce,
    "softmax": _softmax,
    "embedding": _embedding,
    "copy": _copy,
    "recurrent": _recurrent,
}
