"""Compression that saves no time: zeros that are multiplied, rounding around float products, weights widened again."""

from __future__ import annotations

from typing import Any

import torch

from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here

WIDTH = 512


def _masked(zeros: float) -> Any:
    models.seeded()
    model = models.mlp(WIDTH, 4 * WIDTH)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("weight"):
                weight.mul_(torch.rand_like(weight) >= zeros)
    return model


def _zeros_multiplied(here: Here, model: Any) -> Said:
    seen = here.examine(model, torch.randn(16, WIDTH), inside=True)
    found = seen.found.get("masked_weights")
    flops = f"{seen.diagnosis.ledger.flops / 1e6:.3g} MFLOP are done"
    return Said(fires=found is not None, words=f"{found.evidence if found else 'weights are not masked'}; {flops}")


def _rounding(here: Here, model: Any) -> Said:
    found = here.examine(model, torch.randn(16, WIDTH)).found.get("fake_quantisation")
    return Said(fires=found is not None, words=found.evidence if found else "nothing is rounded around float products")


def _smaller() -> Any:
    models.seeded()
    return models.mlp(WIDTH, 4 * WIDTH // 5)


CASES = (
    Case(
        name="masked-sparsity",
        numbers=(23, 24),
        reference="pytorch/tutorials#905; tensorflow/model-optimization#391, #611",
        situation="a perceptron with 80 % of its weights set to zero",
        verdict="the zeros are multiplied: a lever on size, not on time",
        cured="a perceptron whose hidden layer is a fifth as wide",
        ask=lambda here: _zeros_multiplied(here, _masked(0.8)),
        ask_cured=lambda here: _zeros_multiplied(here, _smaller()),
    ),
    Case(
        name="rounding-around-float-products",
        numbers=(),
        reference="issue 3: fake-quantised compression",
        situation="weights and activations rounded to int8 and back around float products",
        verdict="quantised in value only: nothing runs in int8",
        cured="the same layers in plain float",
        ask=lambda here: _rounding(here, models.Rounded(WIDTH)),
        ask_cured=lambda here: _rounding(here, models.Stack(models.dense(WIDTH))),
    ),
)
