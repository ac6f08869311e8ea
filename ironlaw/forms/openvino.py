"""ONNX -> OpenVINO IR. Weights stay at their precision: fp16 storage is a lever's choice, not a converter's.

Why the core's own reader and not ``convert_model``: both run the same ONNX front end, but the latter
reports each use over the network unless the user opted out, which has no place in a measuring tool.
"""

from __future__ import annotations

from pathlib import Path

from ironlaw.forms import files
from ironlaw.records import Snapshot


def convert(source: Path, snapshot: Snapshot, folder: Path) -> str:
    """Write ``folder/model.xml`` and ``model.bin`` from the ONNX model at ``source``."""
    import openvino

    model = openvino.Core().read_model(str(source))
    openvino.save_model(model, str(folder / "model.xml"), compress_to_fp16=False)
    return files.digest_of(folder / "model.xml", folder / "model.bin")
