"""Arithmetic without a good kernel: half precision that is emulated, products that run far under the ceiling.

What is due depends on the CPU, so that it is measured beside the question: the same product in both precisions, in
turns. The verdict is right when it agrees with that.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ironlaw.records import Diagnosis, Machine
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here, fastest, one_thread

_SLOWER, _FASTER = 0.6, 1.5
"""How far from even a direct comparison must be to say which side is faster."""
_ALARM = 10.0
"""A call that takes so many times its overlapped bound, with arithmetic dominant, runs a reference kernel."""


def _far_under_the_ceiling(here: Here, matrix: Any) -> Said:
    """The time is arithmetic, and many times what the ceilings allow."""
    found = here.examine(models.Product(matrix), matrix[:128]).diagnosis
    bound = found.overlapped_bound_s
    if bound is None:
        return Said(fires=None, words="no ceilings were measured")
    times = found.total_s / bound.high
    evidence = next(t.evidence for t in found.terms if t.term == "compute")
    words = f"{times:.1f} times the bound; {evidence}"
    if found.dominant is None and times > _ALARM:
        return Said(fires=None, words=words)
    return Said(fires=times > _ALARM and found.dominant == "compute", words=words)


def _plain_loop(here: Here) -> Said:
    """A product of integers, where that is as slow here as a plain loop: some CPUs multiply them by vectors."""
    matrix = torch.ones(512, 512)
    whole = matrix.long()
    full_s, plain_s = fastest([lambda: torch.mm(matrix[:128], matrix), lambda: torch.mm(whole[:128], whole)])
    said = _far_under_the_ceiling(here, whole)
    if plain_s > _ALARM * full_s:
        return said
    words = f"integers take only {plain_s / full_s:.2g} times as long as floats on this CPU; {said.words}"
    return Said(fires=None, words=words)


# ---------------------------------------------------------------- half precision


def _half_gain(here: Here, dtype: torch.dtype) -> float:
    """fp32 over half-precision seconds of one product, in turns on one thread."""

    def compare() -> float:
        models.seeded()
        a, b = torch.randn(192, 192), torch.randn(192, 192)
        x, y = a.to(dtype), b.to(dtype)
        with one_thread():
            wide_s, half_s = fastest([lambda: torch.mm(a, b), lambda: torch.mm(x, y)])
        return wide_s / half_s

    return here.once(f"gain of {dtype}", compare)


def _emulated(here: Here, dtype: torch.dtype) -> Said:
    """Products in that dtype are named as emulated, against the direct comparison."""
    gain = 1.0 if dtype is torch.float32 else _half_gain(here, dtype)
    models.seeded()
    model = models.Product(torch.randn(192, 192).to(dtype))
    found = here.examine(model, torch.randn(192, 192).to(dtype)).found.get("emulated_precision")
    words = (found.evidence if found else "nothing is emulated") + f"; {dtype} products gain {gain:.2g}x here"
    if dtype is torch.float32:
        return Said(fires=found is not None, words=words)
    return _agrees(gain, refused=found is not None, words=words)


def _refused_half(here: Here, name: str, dtype: torch.dtype, machine: Machine | None = None) -> Said:
    """The lever for that dtype is refused with both rates, or offered where products gain."""
    diagnosis = here.once("float product", lambda: _float_product(here))
    candidate = here.candidate(models.mlp(256, 256), torch.randn(64, 256))
    reason = here.plan(candidate, diagnosis, machine).refused(name)
    if machine is not None:
        return Said(fires=bool(reason), words=reason or f"{name} is on the table")
    gain = _half_gain(here, dtype)
    words = f"{reason or name + ' is offered'}; products gain {gain:.2g}x"
    if "not measured" in reason:
        return Said(fires=None, words=words)
    return _agrees(gain, refused=bool(reason), words=words)


def _float_product(here: Here) -> Diagnosis:
    return here.examine(models.mlp(256, 256), torch.randn(64, 256)).diagnosis


def _agrees(gain: float, *, refused: bool, words: str) -> Said:
    if _SLOWER < gain < _FASTER:
        return Said(fires=None, words=words)
    return Said(fires=refused is (gain < 1.0), words=words)


def _with_fast(here: Here, dtype: str) -> Machine:
    """This machine, every ceiling believed, with products in ``dtype`` twice as fast as in fp32."""
    believed = [dataclasses.replace(one, valid=True) for one in here.machine.ceilings]
    full = {one.threads: one for one in believed if one.name == "matmul" and one.dtype == "fp32"}
    others = [one for one in believed if not (one.name == "matmul" and one.dtype == dtype)]
    twice = [
        dataclasses.replace(one, dtype=dtype, low=2.0 * one.low, value=2.0 * one.value, high=2.0 * one.high)
        for one in full.values()
    ]
    return dataclasses.replace(here.machine, ceilings=(*others, *twice))


CASES = (
    Case(
        name="reference-kernel",
        numbers=(14,),
        reference="tensorflow/tflite-micro#797",
        situation="a product of integers that this framework multiplies by a plain loop",
        verdict="arithmetic dominates at many times what the ceiling allows",
        cured="the same product in float32",
        ask=_plain_loop,
        ask_cured=lambda here: _far_under_the_ceiling(here, torch.ones(512, 512)),
    ),
    Case(
        name="fp16-emulated",
        numbers=(17,),
        reference="pytorch/pytorch#146508",
        situation="a product in float16",
        verdict="named as emulated exactly where it is slower than float32 here",
        cured="the same product in float32",
        ask=lambda here: _emulated(here, torch.float16),
        ask_cured=lambda here: _emulated(here, torch.float32),
    ),
    Case(
        name="bf16-emulated",
        numbers=(17,),
        reference="pytorch/pytorch#146508 (the kind)",
        situation="a product in bfloat16",
        verdict="named as emulated exactly where it is slower than float32 here",
        cured="the same product in float32",
        ask=lambda here: _emulated(here, torch.bfloat16),
        ask_cured=lambda here: _emulated(here, torch.float32),
    ),
    Case(
        name="half-precision-ceiling-probe",
        numbers=(18,),
        reference="NVIDIA/apex#153",
        situation="fp16 asked of a float model",
        verdict="refused with both measured rates where products gain nothing",
        cured="the same machine with fp16 products twice as fast as fp32",
        ask=lambda here: _refused_half(here, "fp16", torch.float16),
        ask_cured=lambda here: _refused_half(here, "fp16", torch.float16, _with_fast(here, "fp16")),
    ),
)
