"""Claims that do not hold: passes that make a model slower, gains within the noise, energy that nobody measured.

Blocks of both are timed in turns in this process and judged as trials are. ``tune`` uses fresh processes for it; a
situation only has to tell twice as fast from not faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ironlaw.diagnose.energy import modelled
from ironlaw.measure.ledger_torch import count_module
from ironlaw.measure.statistics import claim_floor, gain_of
from ironlaw.records import Gain, Goal, Outcome, Quality
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here, one_thread, timed
from ironlaw.verify.outcome import verdict

GROUPS, BLOCKS, BLOCK_S = 4, 6, 0.012
WIDTH, ROWS = 512, 16
_KEPT = Quality(
    metric="agreement",
    value=1.0,
    baseline=1.0,
    drop=0.0,
    low=0.0,
    high=0.0,
    examples=1,
    provable=0.0,
    within=True,
    reason="not in question here",
)


def _baseline() -> Any:
    models.seeded()
    return models.Stack(models.dense(WIDTH, 4))


def _judged(before: Any, after: Any) -> tuple[Outcome, str, Gain]:
    """The verdict on ``after`` in place of ``before``, as of a trial, on latency."""
    models.seeded(1)
    x = torch.randn(ROWS, WIDTH)
    with one_thread(), torch.inference_mode():
        floor = claim_floor(_ratios(lambda: before(x), lambda: before(x)))
        gain = gain_of(_ratios(lambda: before(x), lambda: after(x)), floor=floor, settled=True)
        measured = timed(lambda: after(x))
    outcome, reason = verdict(Goal(), "torch", (), gain, measured, _KEPT, None)
    return outcome, reason, gain


def _ratios(one: Callable[[], object], other: Callable[[], object]) -> list[list[float]]:
    """Log of the first over the second, block by block in turns, in groups with a pause between."""
    for call in (one, other):
        _block_s(call)
    groups = []
    for _ in range(GROUPS):
        groups.append([math.log(_block_s(one) / _block_s(other)) for _ in range(BLOCKS)])
        time.sleep(0.01)
    return groups


def _block_s(call: Callable[[], object]) -> float:
    """Seconds a call over a block."""
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < BLOCK_S:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls


def _rejected(before: Any, after: Any) -> Said:
    outcome, reason, gain = _judged(before, after)
    words = f"{gain.median:.2f}x [{gain.low:.2f}, {gain.high:.2f}]: {outcome}: {reason}"
    if outcome is Outcome.IMPROVED:
        return Said(fires=False, words=words)
    return Said(fires=True if outcome is Outcome.NOT_BETTER else None, words=words)


def _accepted_if_faster(before: Any, after: Any) -> Said:
    """The twin: a change that halves the work must not be rejected; noise may leave it open."""
    found = _rejected(before, after)
    return Said(fires=None, words=found.words) if found.fires else found


def _half() -> Any:
    return models.Stack(models.dense(WIDTH, 1))


class _Uncounted(nn.Module):  # type: ignore[misc]
    """An operator for which there is no formula, after one for which there is."""

    def forward(self, x: Any) -> Any:
        return torch.linalg.svdvals(x @ x)


class _Counted(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return torch.tanh(x @ x)


def _energy_unknown(here: Here, model: Any) -> Said:
    """Energy is null where the work is not known, and labelled as modelled where it is."""
    ledger = count_module(model, (torch.randn(32, 32),), batch=1, cache_bytes=here.cache_bytes)
    energy = modelled(ledger, precision="fp32")
    words = f"energy {energy.value} J, source {energy.source}; not counted: {', '.join(ledger.uncounted) or 'nothing'}"
    if energy.value is not None and energy.source != "modelled":
        return Said(fires=None, words=words)
    return Said(fires=energy.value is None, words=words)


CASES = (
    Case(
        name="slower-pass",
        numbers=(4,),
        reference="microsoft/Olive#787",
        situation="a pass that rounds to int8 and back around float layers",
        verdict="rejected: not better than what it started from",
        cured="a pass that leaves a quarter of the layers",
        ask=lambda here: _rejected(_baseline(), models.Rounded(WIDTH)),
        ask_cured=lambda here: _accepted_if_faster(_baseline(), _half()),
    ),
    Case(
        name="int8-stored-and-widened",
        numbers=(11,),
        reference="bitsandbytes-foundation/bitsandbytes#490",
        situation="weights stored as int8 and widened to float in every call",
        verdict="not faster than float: a lever on memory only",
        cured="a quarter of the layers in float",
        ask=lambda here: _rejected(_baseline(), models.Widened(_baseline().layers)),
        ask_cured=lambda here: _accepted_if_faster(_baseline(), _half()),
    ),
    Case(
        name="claim-within-the-noise",
        numbers=(28,),
        reference="pytorch/tutorials#3236",
        situation="a change that is said to speed things up and changes nothing",
        verdict="no gain is proven",
        cured="a change that leaves a quarter of the layers",
        ask=lambda here: _rejected(_baseline(), _baseline()),
        ask_cured=lambda here: _accepted_if_faster(_baseline(), _half()),
    ),
    Case(
        name="energy-not-known",
        numbers=(58,),
        reference="mlco2/codecarbon#117",
        situation="a call with an operator that nobody can count, on a machine whose counters are not read",
        verdict="its energy is unknown, never a default",
        cured="a call that is counted in full: modelled, and said to be",
        ask=lambda here: _energy_unknown(here, _Uncounted()),
        ask_cured=lambda here: _energy_unknown(here, _Counted()),
    ),
)
