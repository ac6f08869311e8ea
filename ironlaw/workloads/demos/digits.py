"""``demo:digits``: a small CNN on 1,797 handwritten digits of 8x8 pixels (UCI, shipped with scikit-learn).

Half trains and half judges: 900 examples without one disagreement prove a drop below 0.34 pt. The model is
made of torch's own layers only, so that its artefacts load without ironlaw.
"""

from __future__ import annotations

from typing import Any

from ironlaw.metrics import top1
from ironlaw.workloads.demos.training import fit_classifier, reproducible
from ironlaw.workloads.inference import Inference

EVALUATED = 900
CALIBRATED = 128


def workload(batch: int = 1) -> Inference:
    """The trained CNN, top-1 on 900 digits that it never saw, 128 training images for calibration."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.from_numpy(digits.images[order].astype(np.float32) / 16.0).unsqueeze(1)
    labels = torch.from_numpy(digits.target[order].astype(np.int64))
    seen, held = slice(EVALUATED, None), slice(0, EVALUATED)
    with reproducible(seed=0):
        model = network()
        fit_classifier(model, images[seen], labels[seen], epochs=25, batch=32, rate=4e-3)
    calibration = images[seen][:CALIBRATED]
    return Inference(
        model,
        images[held][:batch],
        evaluate=top1(images[held], labels[held]),
        calibrate=list(calibration.split(32)),
        metric="top1",
        name="digits" if batch == 1 else f"digits@{batch}",
    )


def network() -> Any:
    """Three convolutions with batch norm and a linear head: (batch, 1, 8, 8) to (batch, 10) logits."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10),
    )  # fmt: skip
