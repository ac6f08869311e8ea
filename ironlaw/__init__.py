"""Make an ML workload faster, smaller, cheaper, and prove it.

    import ironlaw as il
    run = il.tune(il.Inference(model, example, evaluate=...), max_drop="1pt")

Names load on first use, so that importing ironlaw costs next to nothing.

records     what crosses every step        contracts   what levers and targets offer
api         tune, diagnose, machine, ...   metrics     ready metrics for evaluate
loop        the steps in order             bench       finds facts about a candidate
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw import metrics
    from ironlaw.api import compare, deploy, diagnose, machine, report, tune
    from ironlaw.records import Run, UserError
    from ironlaw.workloads.inference import Inference
    from ironlaw.workloads.training import Training

__version__ = "0.1.0"

_HOMES = {
    "Inference": "ironlaw.workloads.inference",
    "Run": "ironlaw.records",
    "Training": "ironlaw.workloads.training",
    "UserError": "ironlaw.records",
    **dict.fromkeys(("compare", "deploy", "diagnose", "machine", "report", "tune"), "ironlaw.api"),
}

__all__ = [
    "Inference",
    "Run",
    "Training",
    "UserError",
    "compare",
    "deploy",
    "diagnose",
    "machine",
    "metrics",
    "report",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return importlib.import_module("ironlaw.metrics")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ironlaw' has no attribute {name!r}")
