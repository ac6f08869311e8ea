"""Small seeded models of which situations are made; each is one idea, with its cured form beside it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def seeded(seed: int = 0) -> None:
    """The same weights and inputs every time."""
    torch.manual_seed(seed)


class Chain(nn.Module):  # type: ignore[misc]
    """``count`` pointwise operators, one after the other."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Any) -> Any:
        for _ in range(self.count):
            x = torch.tanh(x)
        return x


class Fresh(nn.Module):  # type: ignore[misc]
    """A new large buffer for every result, given back after the call."""

    def forward(self, x: Any) -> Any:
        for _ in range(3):
            x = x * 1.5
        return x


class Kept(nn.Module):  # type: ignore[misc]
    """The same arithmetic in place."""

    def forward(self, x: Any) -> Any:
        for _ in range(3):
            x = x.mul_(1.0)
        return x


class Product(nn.Module):  # type: ignore[misc]
    """One product of the input with a square matrix in the input's dtype."""

    def __init__(self, matrix: Any) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)

    def forward(self, x: Any) -> Any:
        return torch.mm(x, self.matrix)


class Block(nn.Module):  # type: ignore[misc]
    """One transformer encoder layer of width ``width`` without dropout: attention, then a feed-forward of 4x."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inside, self.outside = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.inside(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.outside(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Relaid(nn.Module):  # type: ignore[misc]
    """Pointwise work between transposes that are made real: the layout goes back and forth."""

    def forward(self, x: Any) -> Any:
        for _ in range(4):
            x = torch.relu(x.transpose(1, 2).contiguous())
        return x


class Steady(nn.Module):  # type: ignore[misc]
    """The same pointwise work in the layout that the data has."""

    def forward(self, x: Any) -> Any:
        for _ in range(4):
            x = torch.relu(x)
        return x


class ReadsBack(nn.Module):  # type: ignore[misc]
    """A Python decision on a value in each turn of a loop."""

    def forward(self, x: Any) -> Any:
        for _ in range(20):
            x = x * 0.5 if x.sum().item() > 0 else x + 1.0
        return x


class StaysTensor(nn.Module):  # type: ignore[misc]
    """The same decision by ``torch.where``."""

    def forward(self, x: Any) -> Any:
        for _ in range(20):
            x = torch.where(x.sum() > 0, x * 0.5, x + 1.0)
        return x


class Rounded(nn.Module):  # type: ignore[misc]
    """Two layers with weights and activations rounded to int8 and back around float products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
            weight = torch.fake_quantize_per_tensor_affine(layer.weight, 0.01, 0, -128, 127)
            x = torch.relu(nn.functional.linear(x, weight, layer.bias))
        return x


class Widened(nn.Module):  # type: ignore[misc]
    """Layers whose weights are stored as int8 and widened to float in every call."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        for index, layer in enumerate(layers):
            scale = layer.weight.abs().amax() / 127.0
            self.register_buffer(f"weight{index}", (layer.weight / scale).round().to(torch.int8))
            self.register_buffer(f"scale{index}", scale.detach())
        self.count = len(layers)

    def forward(self, x: Any) -> Any:
        for index in range(self.count):
            weight = getattr(self, f"weight{index}").to(torch.float32) * getattr(self, f"scale{index}")
            x = torch.relu(nn.functional.linear(x, weight))
        return x


def dense(width: int, count: int = 2) -> nn.ModuleList:
    """Square layers without bias."""
    return nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(count))


class Stack(nn.Module):  # type: ignore[misc]
    """Layers with a ReLU after each."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def mlp(width: int, hidden: int) -> nn.Sequential:
    """``width`` to ``hidden`` and back."""
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


def cnn(channels: int, kernel: int = 3) -> nn.Sequential:
    """Two convolutions on images of 3 channels, pooled to 10 logits."""
    pad = kernel // 2
    return nn.Sequential(
        nn.Conv2d(3, channels, kernel, padding=pad), nn.ReLU(),
        nn.Conv2d(channels, channels, kernel, padding=pad), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10),
    )  # fmt: skip
