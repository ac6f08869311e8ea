"""ONNX -> OpenVINO IR. Weights stay at their precision: fp16 storage is a lever's choice, not a converter's.

Why the core's own reader and not ``convert_model``: both run the same ONNX front end, and the latter
reports each use over the network unless it is silenced, which has no place in a measuring tool.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ironlaw.forms import telemetry
from ironlaw.records import Snapshot


def convert(source: Path, snapshot: Snapshot, folder: Path) -> str:
    """Write ``folder/model.xml`` and ``model.bin`` from the ONNX model at ``source``."""
    telemetry.silence()
    import openvino

    model = openvino.Core().read_model(str(source))
    openvino.save_model(model, str(folder / "model.xml"), compress_to_fp16=False)
    return digest(folder / "model.xml")


def digest(path: Path) -> str:
    """sha256 over an IR and its weights; the numbers in generated names, which count per process, are left out."""
    plain = re.sub(rb'(name="[^"]*?)_\d+"', rb'\1"', path.read_bytes())
    return hashlib.sha256(plain + path.with_suffix(".bin").read_bytes()).hexdigest()
