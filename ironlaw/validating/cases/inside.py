"""What only a look inside the model shows: subnormal numbers, code that is compiled anew for every shape."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here


class _Halved(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        for _ in range(4):
            x = x * 0.75
        return x


class _Compiled(nn.Module):  # type: ignore[misc]
    """Compiled without code generation: what is asked is how often."""

    def __init__(self, *, dynamic: bool) -> None:
        super().__init__()
        self.inner = torch.compile(_work, backend="eager", dynamic=dynamic)

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def _work(x: Any) -> Any:
    return torch.relu(x * x.shape[0] + 1.0)


def _subnormal(here: Here, value: float) -> Said:
    seen = here.examine(_Halved(), torch.full((256, 256), value), inside=True)
    found = seen.found.get("denormals")
    if seen.facts.inspection and seen.facts.inspection.flushes_subnormals:
        return Said(fires=None, words="this process flushes subnormal numbers already")
    return Said(fires=found is not None, words=found.evidence if found else "no subnormal numbers")


def _recompiled(here: Here, *, dynamic: bool) -> Said:
    torch._dynamo.reset()
    seen = here.examine(_Compiled(dynamic=dynamic), torch.randn(8, 16), inside=True)
    found = seen.found.get("recompilation")
    tried = seen.facts.inspection.shapes if seen.facts.inspection else 1
    torch._dynamo.reset()
    return Said(fires=found is not None, words=found.evidence if found else f"{tried} shapes, one compilation serves")


CASES = (
    Case(
        name="denormals",
        numbers=(),
        reference="issue 3: denormals; PyTorch performance tuning guide",
        situation="activations of 1e-39",
        verdict="values are subnormal: flush them to zero",
        cured="activations of 1",
        ask=lambda here: _subnormal(here, 1e-39),
        ask_cured=lambda here: _subnormal(here, 1.0),
    ),
    Case(
        name="compiled-for-every-length",
        numbers=(36,),
        reference="pytorch/pytorch#105279",
        situation="code compiled for fixed shapes meets five lengths",
        verdict="it is compiled again for each: use dynamic shapes or a few sizes",
        cured="compiled for dynamic shapes",
        ask=lambda here: _recompiled(here, dynamic=False),
        ask_cured=lambda here: _recompiled(here, dynamic=True),
    ),
)
