"""The models and steps of ``memory``: seven families, two optimisers, two batches each, with random weights and data.

Sizes are such that a step holds some hundred megabytes, so that what torch itself keeps is small beside it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ironlaw.measure.training_step import Step

CLASSES, WORDS = 10, 4000
BATCHES = {
    "resnet": (64, 128),
    "efficientnet": (32, 64),
    "encoder": (16, 32),
    "decoder": (8, 16),
    "lstm": (64, 128),
    "gru": (64, 128),
    "mlp": (1024, 4096),
}
OPTIMISERS = ("sgd-momentum", "adamw")


def build(family: str, batch: int, optimiser: str) -> Step:
    """One step. On the meta device it is made without data."""
    net = _MODELS[family]()
    return Step(
        model=net,
        batch=_BATCHES_OF[family](batch),
        loss=_next_word if family == "decoder" else _classify,
        optimiser=_momentum if optimiser == "sgd-momentum" else torch.optim.AdamW,
    )


def _momentum(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _classify(net: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(net(x), y)


def _next_word(net: Any, words: Any) -> Any:
    return F.cross_entropy(net(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


class _Residual(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2015)."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(into, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        short = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Identity() if into == out else short

    def forward(self, x: Any) -> Any:
        return F.relu(self.body(x) + self.short(x))


class _Inverted(nn.Module):
    """Expand, depthwise, squeeze and excite, project (Tan and Le 2019)."""

    def __init__(self, into: int, out: int, stride: int, kernel: int) -> None:
        super().__init__()
        wide = 6 * into
        self.expand = nn.Sequential(nn.Conv2d(into, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        self.spread = nn.Sequential(
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU()
        )
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(wide, into // 4, 1),
            nn.SiLU(),
            nn.Conv2d(into // 4, wide, 1),
            nn.Sigmoid(),
        )
        self.project = nn.Sequential(nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out))
        self.same = into == out and stride == 1

    def forward(self, x: Any) -> Any:
        y = self.spread(self.expand(x))
        y = self.project(y * self.excite(y))
        return x + y if self.same else y


def _resnet() -> nn.Module:
    widths, layers = (32, 64, 128, 256), []
    for into, out in zip((32, *widths), widths, strict=False):
        layers += [_Residual(into, out, 1 if into == out else 2), _Residual(out, out, 1)]
    stem = [nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True)]
    return nn.Sequential(*stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, CLASSES))


def _efficientnet() -> nn.Module:
    stages = [(16, 24, 2, 3), (24, 24, 1, 3), (24, 40, 2, 5), (40, 40, 1, 5), (40, 80, 2, 3), (80, 80, 1, 3)]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(80, CLASSES)]
    return nn.Sequential(*stem, *(_Inverted(*stage) for stage in stages), *head)


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        self.words = nn.Embedding(WORDS, 256)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, CLASSES)

    def forward(self, words: Any) -> Any:
        return self.head(self.layers(self.words(words)).mean(1))


class _DecoderLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        heads = [one.unflatten(-1, (4, -1)).transpose(1, 2) for one in self.into(self.before(x)).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class _Decoder(nn.Module):
    """Pre-norm, causal, head tied to the embedding (Radford et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 256)
        self.layers = nn.Sequential(*(_DecoderLayer(256) for _ in range(4)), nn.LayerNorm(256))
        self.head = nn.Linear(256, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Any) -> Any:
        return self.head(self.layers(self.words(words)))


class _Recurrent(nn.Module):
    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(WORDS, 128), cell(128, 256, 2), nn.Linear(256, CLASSES)

    def forward(self, words: Any) -> Any:
        return self.head(self.cell(self.words(words.t()))[0][-1])


def _mlp() -> nn.Module:
    widths = (512, 2048, 2048, 1024, CLASSES)
    pairs = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    return nn.Sequential(*[part for pair in pairs for part in pair][:-1])


def _images(batch: int) -> tuple[Any, ...]:
    return torch.randn(batch, 3, 32, 32), torch.randint(CLASSES, (batch,))


def _texts(length: int, labelled: bool = True) -> Any:
    def made(batch: int) -> tuple[Any, ...]:
        words = torch.randint(WORDS, (batch, length))
        return (words, torch.randint(CLASSES, (batch,))) if labelled else (words,)

    return made


def _rows(batch: int) -> tuple[Any, ...]:
    return torch.randn(batch, 512), torch.randint(CLASSES, (batch,))


_MODELS = {
    "resnet": _resnet,
    "efficientnet": _efficientnet,
    "encoder": _Encoder,
    "decoder": _Decoder,
    "lstm": lambda: _Recurrent(nn.LSTM),
    "gru": lambda: _Recurrent(nn.GRU),
    "mlp": _mlp,
}
_BATCHES_OF = {
    "resnet": _images,
    "efficientnet": _images,
    "encoder": _texts(128),
    "decoder": _texts(129, labelled=False),
    "lstm": _texts(64),
    "gru": _texts(64),
    "mlp": _rows,
}
