"""Counts the models of replayed cases once: ``python -m ironlaw.validating.record`` writes ``recordings/``.

Real architectures, as published, without weights: what a call does depends on shapes only, so each is counted on
fake tensors, also where it is larger than memory. Every ledger says by which cache its traffic was narrowed.

- ``resnet50``: He et al. 2016, 25.6 M parameters, batch 16 or 32 of 224 x 224
- ``efficientnet-lite0``: the demo's network, batch 32 of 224 x 224
- ``llama2-7b-decode``: one token for each of 1 to 1280 sequences after 64 tokens (Touvron et al. 2023), bfloat16
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ironlaw.measure.ledger_torch import count_on_fakes
from ironlaw.records import to_data

FOLDER = Path(__file__).parent / "recordings"
CACHES = (2 << 20, 4 << 20, 40 << 20)
"""Last levels of a Raspberry Pi 5, a T4 and an A100."""


class Bottleneck(nn.Module):  # type: ignore[misc]
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        same = inside == outside and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        )

    def forward(self, x: Any) -> Any:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Sequential:
    """(batch, 3, 224, 224) to (batch, 1000)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Bottleneck(inside, width, stride if index == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Decoder(nn.Module):  # type: ignore[misc]
    """A layer of Llama 2 7B for one new token a sequence, with the keys and values of those before."""

    def __init__(self, width: int = 4096, heads: int = 32, inner: int = 11008) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        batch, _, width = x.shape
        normed = self.first(x)
        q, k, v = (part(normed).view(batch, 1, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, torch.cat([keys, k], 2), torch.cat([values, v], 2))
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, 1, width))
        normed = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):  # type: ignore[misc]
    """All 32 layers and the head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Decoder() for _ in range(32))
        self.head = nn.Linear(4096, 32000, bias=False)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        for layer in self.layers:
            x = layer(x, keys, values)
        return self.head(x)


def _on_meta(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.device("meta"):
        return make().to(dtype).eval()


def _images(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.empty(batch, 3, 224, 224),)


def _tokens(batch: int, before: int = 64) -> tuple[torch.Tensor, ...]:
    held = torch.empty(batch, 32, before, 128, dtype=torch.bfloat16)
    return torch.empty(batch, 1, 4096, dtype=torch.bfloat16), held, held.clone()


def recordings() -> dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]], int]]:
    """What is recorded: a model, its inputs, its batch."""
    from ironlaw.workloads.demos.efficientnet import network

    def llama() -> nn.Module:
        return _on_meta(Llama, torch.bfloat16)

    def residual() -> nn.Module:
        return _on_meta(resnet50)

    found = {f"llama2-7b-decode-{n}": (llama, partial(_tokens, n), n) for n in (1, 5, 256, 1280)}
    return {
        "resnet50-16": (residual, partial(_images, 16), 16),
        "resnet50-32": (residual, partial(_images, 32), 32),
        "efficientnet-lite0-32": (lambda: _on_meta(network), partial(_images, 32), 32),
        **found,
    }


def _caches(name: str) -> tuple[int | None, ...]:
    """None is a cache without end: first touches only."""
    return (None, CACHES[2]) if name.startswith("llama") else (None, *CACHES)


def main() -> None:
    """Count and write them all."""
    FOLDER.mkdir(exist_ok=True)
    for name, (make, inputs, batch) in recordings().items():
        model = make()
        ledgers = {
            str(cache): to_data(count_on_fakes(model, inputs(), batch=batch, cache_bytes=cache))
            for cache in _caches(name)
        }
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        found = {"name": name, "torch": torch.__version__, "weights_bytes": weights, "ledgers": ledgers}
        (FOLDER / f"{name}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
