"""Families of networks that ``families`` does not have: mobile CNNs, decoder steps, U-Nets, recommenders.

Each is written out of plain modules, as people write them, with random weights; speed does not depend on their values.
A maker gives (module, example); the first axis of every input is the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[Any, tuple[Any, ...]]


def mobile(width: int, side: int, batch: int, *, kernel: int = 3, groups: int = 1, dilation: int = 1) -> Made:
    """Inverted residuals at three resolutions; ``groups`` of their pointwise, ``dilation`` of their depthwise part."""

    def block(narrow: int, wide: int, stride: int) -> Any:
        return _Inverted(narrow, wide, stride, kernel, groups, dilation)

    model = nn.Sequential(
        _unit(3, width, 3, stride=2), block(width, width, 1), block(width, 2 * width, 2),
        block(2 * width, 2 * width, 1), block(2 * width, 4 * width, 2), block(4 * width, 4 * width, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 20),
    )  # fmt: skip
    return _made(model, torch.randn(batch, 3, side, side))


def decoder_step(width: int, heads: int, layers: int, past: int, batch: int) -> Made:
    """One token through ``layers``, with keys and values of ``past`` tokens in a cache of its own axis each."""
    cache = torch.randn(batch, layers, 2, heads, past, width // heads)
    return _made(_DecoderStep(width, heads, layers), torch.randn(batch, 1, width), cache)


def unet(width: int, side: int, batch: int, *, depth: int = 2) -> Made:
    """Ronneberger et al. 2015: down by pooling, up by transposed convolutions, joined by concatenation."""
    return _made(_UNet(width, depth), torch.randn(batch, 3, side, side))


def recommender(tables: int, rows: int, width: int, batch: int) -> Made:
    """Naumov et al. 2019 (DLRM): embeddings and a dense part, products of all pairs, a network on top."""
    return _made(_Recommender(tables, rows, width), torch.randn(batch, 13), torch.randint(rows, (batch, tables)))


def _made(model: Any, *example: Any) -> Made:
    return model.eval().requires_grad_(False), example


def _unit(narrow: int, wide: int, kernel: int, *, stride: int = 1, groups: int = 1, dilation: int = 1) -> Any:
    padding = dilation * (kernel // 2)
    convolution = nn.Conv2d(narrow, wide, kernel, stride, padding, dilation, groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(wide), nn.Hardswish())


class _Inverted(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
    """Expand, depthwise, project (Sandler et al. 2018)."""

    def __init__(self, narrow: int, wide: int, stride: int, kernel: int, groups: int, dilation: int) -> None:
        super().__init__()
        inner = 4 * narrow
        self.body = nn.Sequential(
            _unit(narrow, inner, 1, groups=groups),
            _unit(inner, inner, kernel, stride=stride, groups=inner, dilation=dilation),
            nn.Conv2d(inner, wide, 1, groups=groups, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.same = narrow == wide and stride == 1

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.same else self.body(x)


class _DecoderLayer(nn.Module):  # type: ignore[misc]
    """Pre-norm attention over the cache and the new token, then a gated network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Any, cache: Any) -> tuple[Any, Any]:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        keys, values = torch.cat([cache[:, 0], k], 2), torch.cat([cache[:, 1], v], 2)
        mixed = F.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        inner = self.after(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner)), torch.stack([keys, values], 1)


class _DecoderStep(nn.Module):  # type: ignore[misc]
    """Next token's features and the grown cache."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_DecoderLayer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 2000, bias=False)

    def forward(self, x: Any, cache: Any) -> tuple[Any, Any]:
        grown = []
        for index, layer in enumerate(self.layers):
            x, own = layer(x, cache[:, index])
            grown.append(own)
        return self.head(self.norm(x))[:, -1], torch.stack(grown, 1)


class _UNet(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.first = self._pair(3, width)
        self.down = nn.ModuleList(self._pair(narrow, 2 * narrow) for narrow in widths[:-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * narrow, narrow, 2, 2) for narrow in reversed(widths[:-1]))
        self.join = nn.ModuleList(self._pair(2 * narrow, narrow) for narrow in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 4, 1)

    @staticmethod
    def _pair(narrow: int, wide: int) -> Any:
        return nn.Sequential(nn.Conv2d(narrow, wide, 3, 1, 1), nn.ReLU(), nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU())

    def forward(self, x: Any) -> Any:
        x, seen = self.first(x), []
        for down in self.down:
            seen.append(x)
            x = down(F.max_pool2d(x, 2))
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([seen.pop(), up(x)], 1))
        return self.head(x)


class _Recommender(nn.Module):  # type: ignore[misc]
    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 4 * width), nn.ReLU(), nn.Linear(4 * width, width), nn.ReLU())
        pairs = (tables + 1) ** 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())

    def forward(self, x: Any, picks: Any) -> Any:
        dense = self.dense(x)
        features = torch.stack([dense, *(table(picks[:, i]) for i, table in enumerate(self.tables))], 1)
        pairs = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([dense, pairs], 1))
