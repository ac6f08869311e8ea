"""Time that goes to memory without a word: page faults, layouts, channels that miss the vectors, rooflines."""

from __future__ import annotations

from typing import Any

import torch

from ironlaw.records import Term
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Examined, Here

LARGE = 16 << 20
_SIDE = 2048


def _storm(here: Here, model: Any) -> Said:
    seen = here.examine(model, torch.ones(LARGE))
    found = seen.found.get("page_faults")
    faults = seen.facts.measurement.faults_per_call
    share = seen.diagnosis.share(Term.PAGING)
    words = f"{faults:,.0f} page faults a call, {share:.0%} of the time"
    if found is not None:
        return Said(fires=True, words=found.evidence)
    return Said(
        fires=None if isinstance(model, models.Fresh) else False, words=f"{words}: no storm with this allocator"
    )


def _relaid(here: Here, model: Any) -> Said:
    seen = here.examine(model, torch.randn(8, 256, 512))
    found = seen.found.get("layout_copies")
    return Said(fires=found is not None, words=found.evidence if found else "no copies for the layout alone")


def _widths(here: Here, channels: int) -> Said:
    models.seeded()
    seen = here.examine(models.cnn(channels), torch.randn(4, 3, 48, 48))
    found = seen.found.get("channel_width")
    return Said(fires=found is not None, words=found.evidence if found else "channels fill the vectors")


def _rows(here: Here, rows: int) -> Examined:
    """A layer of 64 MB of weights on that many rows."""

    def make() -> Examined:
        models.seeded()
        return here.examine(models.Product(torch.randn(_SIDE * 2, _SIDE * 2)), torch.randn(rows, _SIDE * 2))

    return here.once(f"rows {rows}", make)


def _memory_bound(seen: Examined) -> Said:
    """Fewer bytes would help and more FLOP/s would not."""
    found = seen.diagnosis
    wasted = {one.change: one.wasted for one in found.bounds}
    if found.dominant is None:
        return Said(fires=None, words=found.why)
    fires = found.dominant is Term.MEMORY and wasted["unlimited FLOP/s"]
    return Said(fires=fires, words=found.why)


CASES = (
    Case(
        name="allocator-storm",
        numbers=(),
        reference="STACK: eager took 769,038 page faults an iteration",
        situation="three products of 64 MB into a new buffer each",
        verdict="page faults take the time: keep memory",
        cured="the same in place",
        ask=lambda here: _storm(here, models.Fresh()),
        ask_cured=lambda here: _storm(here, models.Kept()),
    ),
    Case(
        name="layout-back-and-forth",
        numbers=(),
        reference="issue 3: non-contiguous copies and layout ping-pong",
        situation="four transposes that are made contiguous, around pointwise work",
        verdict="data is moved only to change its layout",
        cured="the same work in one layout",
        ask=lambda here: _relaid(here, models.Relaid()),
        ask_cured=lambda here: _relaid(here, models.Steady()),
    ),
    Case(
        name="channels-miss-the-vectors",
        numbers=(27,),
        reference="pytorch/pytorch#111339 (shapes that are padded)",
        situation="convolutions with 17 channels",
        verdict="lanes are empty: choose multiples of the vector width",
        cured="32 channels",
        ask=lambda here: _widths(here, 17),
        ask_cured=lambda here: _widths(here, 32),
    ),
    Case(
        name="crossover-batch",
        numbers=(10,),
        reference="NVIDIA/FasterTransformer#265",
        situation="one row through 64 MB of weights",
        verdict="memory-bound: narrower weights help, FLOP/s do not",
        cured="256 rows through the same weights: compute-bound, narrower weights do not help",
        ask=lambda here: _memory_bound(_rows(here, 1)),
        ask_cured=lambda here: _memory_bound(_rows(here, 256)),
    ),
)
