"""Workloads to try ironlaw on: real models and real data that installed packages carry.

- ``digits``: a small CNN on the handwritten digits of scikit-learn; needs nothing more
- ``digits-training``: training it, from a loader that decodes on the fly
- ``efficientnet``: EfficientNet-Lite0 with its ImageNet weights on photos (``demo:efficientnet@32`` sets the batch)
- ``minilm``: MiniLM-L6 classifying Debian package descriptions by section
- ``mnist``: a CNN on the full MNIST

Nothing is downloaded: where a package is missing, the demo says which and ends with exit code 4. Training is
seeded and on one thread, so that the same machine makes the same weights and the store knows them again.
"""

from __future__ import annotations

import importlib

from ironlaw.records import UserError
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.training import Training

NAMES = ("digits", "efficientnet", "minilm", "mnist")
TRAININGS = ("digits-training",)


def demo(spec: str) -> Inference | Training:
    """The demo ``NAME`` or ``NAME@BATCH``.

    Raises UserError for an unknown name or batch (exit code 2) and for a missing package (exit code 4).
    """
    name, separator, size = spec.partition("@")
    known = (*NAMES, *TRAININGS)
    if name not in known:
        raise UserError(f"demo:{spec}", "is not known", f"Use one of: {', '.join(known)}.")
    if separator and not (size.isdecimal() and 1 <= int(size) <= 1024):
        raise UserError(f"demo:{spec}", f"{size!r} is not a batch size", f"Give for example demo:{name}@32.")
    module = importlib.import_module(f"ironlaw.workloads.demos.{name.replace('-', '_')}")
    found: Inference | Training = module.workload(batch=int(size)) if separator else module.workload()
    return found
