"""``demo:digits-training``: the CNN of ``demo:digits`` trained on digits that are kept compressed.

The loader inflates and augments each sample when it is asked for, as a loader of JPEG files does, so that a real share
of a step is input. 1,797 digits of 8x8 pixels (UCI, shipped with scikit-learn).
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch.nn.functional import affine_grid, cross_entropy, grid_sample
from torch.utils.data import DataLoader

from ironlaw.workloads.demos.digits import network
from ironlaw.workloads.demos.training import reproducible
from ironlaw.workloads.training import Training

BATCH = 32
EPOCHS = 12
EVALUATED = 400


class CompressedDigits:
    """Digits as deflated bytes; ``transform`` takes the 64 bytes of one to a (1, 8, 8) image."""

    def __init__(self, images: Any, labels: Any) -> None:
        self._packed = [zlib.compress(image.tobytes(), 9) for image in images]
        self._labels = [int(label) for label in labels]
        self.transform = augmented

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(bytearray(zlib.decompress(self._packed[index]))), self._labels[index]


def augmented(pixels: bytearray) -> Any:
    """64 grey values from 0 to 16 as an image, turned by up to a tenth of a radian and moved by up to half a pixel."""
    image = torch.frombuffer(pixels, dtype=torch.uint8).view(1, 1, 8, 8).float() / 16.0
    turn, right, down = (torch.rand(3) * 0.2 - 0.1).tolist()
    motion = torch.tensor([[[1.0, -turn, right], [turn, 1.0, down]]])
    return grid_sample(image, affine_grid(motion, [1, 1, 8, 8], align_corners=False), align_corners=False)[0]


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=4e-3)


def workload(batch: int = BATCH) -> Training:
    """The job as many people write it first: no loader workers. 400 digits that it never sees judge what comes out."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.images[order].astype(np.uint8), digits.target[order]
    dataset = CompressedDigits(images[EVALUATED:], labels[EVALUATED:])
    held, truth = torch.from_numpy(images[:EVALUATED]).unsqueeze(1).float() / 16.0, torch.from_numpy(labels[:EVALUATED])

    def accuracy(model: Any) -> float:
        with torch.no_grad():
            return float((model(held).argmax(1) == truth).float().mean())

    with reproducible(seed=0):
        model = network()
    return Training(
        model,
        DataLoader(dataset, batch_size=batch, shuffle=True),
        cross_entropy,
        adam,
        evaluate=accuracy,
        metric="accuracy",
        steps=EPOCHS * -(-len(dataset) // batch),
        name="digits-training" if batch == BATCH else f"digits-training@{batch}",
    )
