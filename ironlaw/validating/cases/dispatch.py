"""Calls that are mostly dispatch: what they show, and what is wasted on them."""

from __future__ import annotations

from typing import Any

import torch

from ironlaw.records import Goal, Objective, Term
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Examined, Here, fastest, one_thread

_MOSTLY = 0.5
_LITTLE, _MUCH = 1.25, 1.5


def _tiny(here: Here) -> Examined:
    return here.once("tiny", lambda: here.examine(models.Chain(200), torch.ones(8, 8)))


def _large(here: Here) -> Examined:
    return here.once("large", lambda: here.examine(models.Chain(20), torch.ones(1024, 1024)))


def _launch_bound(seen: Examined) -> Said:
    """Dispatch dominates, arithmetic and bandwidth would be wasted, and a graph is what works."""
    found = seen.diagnosis
    bounds = {one.change: one for one in found.bounds}
    share = found.share(Term.LATENCY)
    said = f"latency is {share:.0%} of {found.total_s * 1e6:.3g} us; {found.why}"
    if "small_operators" in seen.found and share > _MOSTLY:
        wasted = bounds["unlimited bandwidth"].wasted and not bounds["graph runtime or compiler"].wasted
        return Said(fires=wasted, words=said)
    return Said(fires=None if found.dominant is None and share > _MOSTLY / 2 else False, words=said)


def _image(channels: int, batch: int, side: int) -> tuple[Any, Any]:
    models.seeded()
    return models.cnn(channels), torch.randn(batch, 3, side, side)


def _unsaturated(here: Here) -> Examined:
    return here.once("unsaturated", lambda: here.examine(*_image(4, 1, 8)))


def _saturated(here: Here) -> Examined:
    return here.once("saturated", lambda: here.examine(*_image(64, 4, 64)))


def _little_gained(seen: Examined) -> Said:
    """Half of all channels gone is bounded near 1."""
    bound = next(one for one in seen.diagnosis.bounds if one.change == "structured pruning")
    fires = True if bound.speedup < _LITTLE else False if bound.speedup > _MUCH else None
    return Said(fires=fires, words=bound.reason)


def _raise_batch(here: Here, seen: Examined, channels: int, batch: int, side: int) -> Said:
    """The batch lever predicts that far more examples a second are to be had."""
    model, images = _image(channels, batch, side)
    candidate = here.candidate(model, images, Goal(objective=Objective.THROUGHPUT))
    found = here.plan(candidate, seen.diagnosis)
    planned = found.of("batch")
    if not planned:
        return Said(fires=False, words=f"refused: {found.refused('batch')}")
    best = max(planned, key=lambda plan: plan.predicted.speedup.value).predicted
    gain = best.speedup
    fires = True if gain.low > _MUCH else False if gain.value < _MUCH else None
    return Said(fires=fires, words=f"{gain.value:.2f}x [{gain.low:.2f}, {gain.high:.2f}]: {best.basis}")


def _reads_back(here: Here, model: Any) -> Said:
    seen = here.examine(model, torch.ones(64, 64))
    found = seen.found.get("synchronous_reads")
    return Said(fires=found is not None, words=found.evidence if found else "no value is read back")


def _region(here: Here, count: int, side: int) -> Said:
    """Compiling is not predicted to pay on a call shorter than its guards, which are timed here without a compiler."""
    model, x = models.Chain(count), torch.ones(side, side)
    compiled = torch.compile(model, backend="eager")
    with one_thread(), torch.inference_mode():
        plain_s, guarded_s = fastest([lambda: model(x), lambda: compiled(x)])
    torch._dynamo.reset()
    found = here.plan(here.candidate(model, x), here.examine(model, x).diagnosis)
    words = f"guards add {(guarded_s - plain_s) * 1e6:.3g} us to {plain_s * 1e6:.3g} us; "
    if refused := found.refused("compile"):
        return Said(fires=True, words=words + refused)
    gain = found.of("compile")[0].predicted.speedup
    fires = True if gain.value < 1.0 else None if gain.low < 1.0 else False
    words += f"compile is predicted to give {gain.value:.2f}x [{gain.low:.2f}, {gain.high:.2f}]"
    return Said(fires=False if count > 100 and gain.value > 1.0 else fires, words=words)


CASES = (
    Case(
        name="launch-bound",
        numbers=(33,),
        reference="facebookresearch/sam2#768",
        situation="200 pointwise operators on 8 x 8 values",
        verdict="most of the time is dispatch: a graph pays, bandwidth and FLOP/s do not",
        cured="20 of the same operators on a million values",
        ask=lambda here: _launch_bound(_tiny(here)),
        ask_cured=lambda here: _launch_bound(_large(here)),
    ),
    Case(
        name="halved-flops-little-gained",
        numbers=(25,),
        reference="VainF/Torch-Pruning#97, #33",
        situation="a CNN of 4 channels on one image of 8 x 8: pruning half of all channels",
        verdict="structured pruning gives next to nothing here",
        cured="64 channels on four images of 64 x 64: it gives more than 1.5x",
        ask=lambda here: _little_gained(_unsaturated(here)),
        ask_cured=lambda here: _little_gained(_saturated(here)),
    ),
    Case(
        name="unsaturated-raise-the-batch",
        numbers=(25,),
        reference="VainF/Torch-Pruning#97, #33",
        situation="the same CNN of 4 channels on one image, asked for throughput",
        verdict="a larger batch is predicted to pay",
        cured="64 channels on four images of 64 x 64: a larger batch gives little",
        ask=lambda here: _raise_batch(here, _unsaturated(here), 4, 1, 8),
        ask_cured=lambda here: _raise_batch(here, _saturated(here), 64, 4, 64),
    ),
    Case(
        name="region-smaller-than-its-guards",
        numbers=(34,),
        reference="ScalingIntelligence/KernelBench#68",
        situation="one pointwise operator on 8 x 8 values, to be compiled",
        verdict="entering compiled code costs more than the call",
        cured="400 of them on 64 x 64 values",
        ask=lambda here: _region(here, 1, 8),
        ask_cured=lambda here: _region(here, 400, 64),
    ),
    Case(
        name="values-read-back",
        numbers=(),
        reference="STACK: .item() in loops; pytorch documentation, performance tuning guide",
        situation="a Python decision on .item() in each of 20 turns of a loop",
        verdict="values are read back in a loop: keep them tensors",
        cured="the same decision by torch.where",
        ask=lambda here: _reads_back(here, models.ReadsBack()),
        ask_cured=lambda here: _reads_back(here, models.StaysTensor()),
    ),
)
