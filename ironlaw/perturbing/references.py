"""Pure streams and pure arithmetic, as torch modules: what a co-runner does to each calibrates what it does to others.

They run as artefacts of the torch target, on the processors and threads of the workload, through the same workers.
Buffers are made at the first call, so that nothing large is written to disk.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from ironlaw.forms import eager, files
from ironlaw.records import Artefact, Execution, TensorSpec

SIDE = 96
"""Three square matrices of this side fit any private cache (110 KB)."""
PRODUCTS = 100


class Read(nn.Module):  # type: ignore[misc]
    """Adds up a buffer of ``total_bytes`` that no cache holds."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__()
        self.items = total_bytes // 4
        self.buffer_made: torch.Tensor | None = None

    def forward(self) -> torch.Tensor:
        if self.buffer_made is None:
            self.buffer_made = torch.ones(self.items)
        return self.buffer_made.sum().reshape(1)


class Copy(nn.Module):  # type: ignore[misc]
    """Copies a buffer that no cache holds: half of ``total_bytes`` read, half written, every call."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__()
        self.items = total_bytes // 8
        self.buffers_made: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self) -> torch.Tensor:
        if self.buffers_made is None:
            self.buffers_made = torch.ones(self.items), torch.zeros(self.items)
        source, target = self.buffers_made
        target.copy_(source)
        return target[:1]


class Arithmetic(nn.Module):  # type: ignore[misc]
    """Products of small matrices that stay in the private cache."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers_made: tuple[torch.Tensor, ...] | None = None

    def forward(self) -> torch.Tensor:
        if self.buffers_made is None:
            self.buffers_made = tuple(torch.ones(SIDE, SIDE) for _ in range(3))
        left, right, out = self.buffers_made
        for _ in range(PRODUCTS):
            torch.mm(left, right, out=out)
        return out[0, :1]


def artefacts(folder: Path, execution: Execution, total_bytes: int) -> dict[str, Artefact]:
    """``read``, ``copy`` and ``arithmetic`` under ``folder``, to run on the processors and threads of ``execution``."""
    modules = {"read": Read(total_bytes), "copy": Copy(total_bytes), "arithmetic": Arithmetic()}
    return {name: _artefact(folder / name, module, execution) for name, module in modules.items()}


def _artefact(folder: Path, module: nn.Module, execution: Execution) -> Artefact:
    folder.mkdir(parents=True, exist_ok=True)
    eager.save(module, folder / eager.NAME)
    np.savez(folder / files.EXAMPLE)
    return Artefact(
        kind="recipe",
        folder=str(folder),
        files=(eager.NAME,),
        target="torch",
        execution=Execution(target="torch", batch=1, threads=execution.threads, cpus=execution.cpus),
        inputs=(),
        outputs=(TensorSpec(name="last", shape=(1,), dtype="float32", batched=False),),
        snippet="",
        size_bytes=(folder / eager.NAME).stat().st_size,
        example=files.EXAMPLE,
    )
