"""What the OpenVINO levers share about an IR: its digest, its batch, its outputs, and how far two outputs differ."""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path
from typing import Any

from ironlaw.records import Candidate


def digest(path: Path) -> str:
    """sha256 of structure and weights: layer names are left out, since they hold counters of the process."""
    structure = re.sub(rb' names?="[^"]*"', b"", path.read_bytes())
    return hashlib.sha256(structure + path.with_suffix(".bin").read_bytes()).hexdigest()


def outputs(path: Path, feed: list[Any], candidate: Candidate, extra: dict[str, Any]) -> list[Any]:
    """Outputs of the IR on that feed, in float32 with the threads of the candidate; ``extra`` are properties."""
    import numpy as np
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    names = {port.get_any_name() for port in model.inputs}
    pairs = zip(candidate.snapshot.inputs, feed, strict=True)
    fed = {spec.name: array for spec, array in pairs if spec.name in names}
    model.reshape({name: list(array.shape) for name, array in fed.items()})
    properties = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": candidate.execution.threads, **extra}
    return [np.array(value) for value in core.compile_model(model, "CPU", properties)(fed).values()]


def sqnr_db(reference: list[Any], other: list[Any]) -> float | None:
    """10 log10 of signal over noise, over all floating outputs; None without noise or without such outputs."""
    import numpy as np

    pairs = [(r.astype(np.float64), o.astype(np.float64)) for r, o in zip(reference, other, strict=True)]
    signal = sum(float((r**2).sum()) for r, _ in pairs)
    noise = sum(float(((r - o) ** 2).sum()) for r, o in pairs)
    if not signal or not noise:
        return None
    return 10 * math.log10(signal / noise) if math.isfinite(noise) else -math.inf


def fixed_batch(model: Any) -> int | None:
    """The static batch of the first input, None when it is free."""
    axis = model.inputs[0].get_partial_shape()[0] if model.inputs[0].get_partial_shape().rank.get_length() else None
    return axis.get_length() if axis is not None and axis.is_static else None
