"""Held-out models for ``prediction``: five families, several shapes each, with random weights.

Why built here: nothing of them is in the shapes that runtimes are calibrated on, nor in the demos on which levers
were written. Speed does not depend on the values of weights, so none is trained; weights are small, so that
nothing overflows. Each entry is (module, example), made by a function, since most runs need only some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Made = tuple[Any, tuple[Any, ...]]
FAMILIES = ("cnn small", "cnn large", "mlp", "transformer", "rnn")


def models() -> dict[str, tuple[str, Callable[[], Made]]]:
    """By name: (family, maker)."""
    return {
        "cnn-s-12x17": ("cnn small", lambda: small_cnn(12, 17, 4)),
        "cnn-s-20x26": ("cnn small", lambda: small_cnn(20, 26, 1)),
        "cnn-s-40x11": ("cnn small", lambda: small_cnn(40, 11, 12)),
        "cnn-l-36x72": ("cnn large", lambda: residual_cnn(36, 72, 1)),
        "cnn-l-52x100": ("cnn large", lambda: residual_cnn(52, 100, 2)),
        "cnn-l-28x160": ("cnn large", lambda: residual_cnn(28, 160, 4)),
        "mlp-300": ("mlp", lambda: mlp(150, (300, 220, 90), 1)),
        "mlp-1900": ("mlp", lambda: mlp(700, (1900, 1900, 600), 3)),
        "mlp-900@48": ("mlp", lambda: mlp(450, (900, 900, 900, 900), 48)),
        "encoder-120x24": ("transformer", lambda: encoder(120, 4, 2, 24, 1)),
        "encoder-216x72": ("transformer", lambda: encoder(216, 6, 3, 72, 1)),
        "encoder-168x40@6": ("transformer", lambda: encoder(168, 4, 4, 40, 6)),
        "lstm-96x30": ("rnn", lambda: recurrent("LSTM", 40, 96, 30, 1)),
        "gru-220x18": ("rnn", lambda: recurrent("GRU", 80, 220, 18, 1)),
        "lstm-144x50@8": ("rnn", lambda: recurrent("LSTM", 60, 144, 50, 8)),
    }


def small_cnn(width: int, side: int, batch: int) -> Made:
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.SiLU(),
        nn.Conv2d(width, 2 * width, 5, padding=2, stride=2, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        nn.Linear(2 * width, 7),
    )  # fmt: skip
    return _made(model, (torch.randn(batch, 3, side, side),))


def residual_cnn(width: int, side: int, batch: int) -> Made:
    import torch
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
        def __init__(self, narrow: int, wide: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(),
                nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide),
            )  # fmt: skip
            self.short = nn.Conv2d(narrow, wide, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.short(x))

    model = nn.Sequential(
        nn.Conv2d(3, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 3 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3 * width, 50),
    )  # fmt: skip
    return _made(model, (torch.randn(batch, 3, side, side),))


def mlp(inputs: int, widths: tuple[int, ...], batch: int) -> Made:
    import torch
    from torch import nn

    layers: list[Any] = []
    for narrow, wide in zip((inputs, *widths), widths, strict=False):
        layers += [nn.Linear(narrow, wide), nn.GELU()]
    return _made(nn.Sequential(*layers, nn.Linear(widths[-1], 5)), (torch.randn(batch, inputs),))


def encoder(width: int, heads: int, layers: int, length: int, batch: int) -> Made:
    import torch
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        """Written out, so that no fused fast path of torch hides its operators."""

        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

        def forward(self, x: Any) -> Any:
            shape = (x.shape[0], length, 3, heads, width // heads)
            q, k, v = self.qkv(self.before(x)).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
            return x + self.wide(self.after(x))

    model = nn.Sequential(*(Block() for _ in range(layers)), nn.Linear(width, 9))
    return _made(model, (torch.randn(batch, length, width),))


def recurrent(kind: str, inputs: int, hidden: int, length: int, batch: int) -> Made:
    import torch
    from torch import nn

    class Tagger(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cell = getattr(nn, kind)(inputs, hidden, num_layers=2, batch_first=True)
            self.head = nn.Linear(hidden, 6)

        def forward(self, x: Any) -> Any:
            return self.head(self.cell(x)[0][:, -1])

    return _made(Tagger(), (torch.randn(batch, length, inputs),))


def _made(model: Any, example: tuple[Any, ...]) -> Made:
    return model.eval().requires_grad_(False), example


def workload(name: str) -> Any:
    """The model of that name as a workload: seeded, with three calibration batches, judged by cosine fidelity."""
    import torch

    from ironlaw.workloads.inference import Inference

    torch.manual_seed(sum(map(ord, name)))
    model, example = models()[name][1]()
    calibrate = [tuple(torch.randn_like(x) for x in example) for _ in range(3)]
    return Inference(model, example, calibrate=calibrate, name=name)
