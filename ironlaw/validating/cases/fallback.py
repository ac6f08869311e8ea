"""Operators that quietly stay in float when a model is converted: what the certificate must name."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ironlaw import forms, registry
from ironlaw.records import Form
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here


def _converted(here: Here, model: Any, example: Any) -> Said:
    """Export, quantise, load in ONNX Runtime, and read what ran from its own graph and profile."""
    models.seeded()
    seen = here.examine(model, example)
    folder = Path(tempfile.mkdtemp(dir=here.folder))
    candidate = dataclasses.replace(here.candidate(model, example), workspace=str(folder))
    candidate = forms.convert(candidate, Form.ONNX)
    lever, target = registry.levers()["int8_static"], registry.target("onnxruntime")
    after, _ = lever.apply(dataclasses.replace(candidate, workspace=str(folder)), lever.Settings())
    (folder / "artefact").mkdir()
    artefact = target.export(after, folder / "artefact")
    certificate = target.load(artefact).certify()
    facts = dataclasses.replace(seen.facts, certificate=certificate, execution=artefact.execution)
    found = dataclasses.replace(seen, facts=facts).found.get("fallback")
    words = f"{certificate.converted} of {certificate.eligible} operators run in int8"
    return Said(fires=found is not None, words=found.evidence if found else words)


def _image(*, upsampling: bool) -> nn.Sequential:
    """A convolution, then one that has an int8 kernel or a transposed one that has none."""
    second = nn.ConvTranspose2d(16, 16, 2, 2) if upsampling else nn.Conv2d(16, 16, 3, padding=1)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), second)


CASES = (
    Case(
        name="operators-without-an-int8-kernel",
        numbers=(3,),
        reference="microsoft/onnxruntime#12229, #24807 (the kind)",
        situation="static int8 of a network with a transposed convolution, for which the runtime has no int8 kernel",
        verdict="the operator that fell back to float is named",
        cured="a plain convolution in its place: all of it runs in int8",
        ask=lambda here: _converted(here, _image(upsampling=True), torch.randn(2, 3, 16, 16)),
        ask_cured=lambda here: _converted(here, _image(upsampling=False), torch.randn(2, 3, 16, 16)),
    ),
)
