"""Exported -> ONNX by ``torch.onnx.export`` of the exported program, opset 20.

One exporter for all: the one that starts from ``torch.export``, never the tracing one. Inputs and
outputs carry the snapshot's names, the free axis is called ``batch``, and the exporter's notes
(source paths, stack traces) are removed. The model is checked before it counts as converted.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ironlaw.forms import exported, files
from ironlaw.records import Snapshot

OPSET = 20
EXTERNAL_FROM_BYTES = 1_500_000_000
"""Weights above this go to a file beside the model: a protobuf ends at 2 GB."""


def convert(source: Path, snapshot: Snapshot, folder: Path) -> str:
    """Write ``folder/model.onnx`` from the exported program at ``source``."""
    import torch

    program = exported.load(source)
    rows = max(2, snapshot.batch) if exported.is_dynamic(program) else snapshot.batch
    path = folder / "model.onnx"
    external = snapshot.weights_bytes > EXTERNAL_FROM_BYTES
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # it warns of torchvision, which nothing here needs
    try:
        torch.onnx.export(
            program,
            exported.tensors(snapshot, rows),
            str(path),
            dynamo=True,
            opset_version=OPSET,
            input_names=[spec.name for spec in snapshot.inputs],
            output_names=[spec.name for spec in snapshot.outputs],
            external_data=external,
            verbose=False,
        )
    finally:
        log.setLevel(level)
    _tidy(path, snapshot)
    return files.digest_of(*sorted(p for p in folder.iterdir() if p.name != files.DIGEST))


def _tidy(path: Path, snapshot: Snapshot) -> None:
    """Name the free axis, drop the exporter's notes, check the result."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    graph = model.graph
    free = _free_axis(graph, snapshot)
    for value in (*graph.input, *graph.output, *graph.value_info):
        del value.metadata_props[:]
        for axis in value.type.tensor_type.shape.dim:
            if free and axis.dim_param == free:
                axis.dim_param = "batch"
    for part in (model, graph, *graph.node, *graph.initializer, *(n for f in model.functions for n in f.node)):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.save(model, str(path))
    onnx.checker.check_model(str(path))


def _free_axis(graph: Any, snapshot: Snapshot) -> str:
    batched = {spec.name for spec in snapshot.inputs if spec.batched}
    shapes = (value.type.tensor_type.shape.dim for value in graph.input if value.name in batched)
    return next((dims[0].dim_param for dims in shapes if dims and dims[0].dim_param), "")
