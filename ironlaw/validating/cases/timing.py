"""Benchmarks that time something else than they say: ``ironlaw lint`` on scripts, and a clock that changes speed."""

from __future__ import annotations

import time

from ironlaw.linting import lint_text
from ironlaw.machine.gate import ceiling, settle
from ironlaw.measure.foreign import ForeignClock
from ironlaw.records import Ceiling
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here

_HEAD = """
import statistics
import time

import torch

DEVICE = "{device}"
model = torch.nn.Linear(1024, 1024).to(DEVICE).eval()
x = torch.randn(64, 1024, device=DEVICE)
samples = []
"""
_WARM = """
with torch.inference_mode():
    for _ in range(10):
        model(x)
"""
_SYNCHRONISED = """
with torch.inference_mode():
    for _ in range(50):
        torch.cuda.synchronize()
        start = time.perf_counter()
        model(x)
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
print(statistics.median(samples), statistics.quantiles(samples, n=4))
"""
_ON_CPU = _SYNCHRONISED.replace("        torch.cuda.synchronize()\n", "")
_GPU, _CPU = _HEAD.format(device="cuda"), _HEAD.format(device="cpu")
CLEAN, CLEAN_GPU = _CPU + _WARM + _ON_CPU, _GPU + _WARM + _SYNCHRONISED
"""Scripts without a mistake of timing."""

MISTAKES = {
    "no-synchronisation": (_GPU + _WARM + _ON_CPU, CLEAN_GPU),
    "no-warm-up": (_CPU + _ON_CPU, CLEAN),
    "few-samples": (CLEAN.replace("range(50)", "range(3)"), CLEAN),
    "copy-inside": (
        CLEAN_GPU.replace("        model(x)\n        torch", '        model(x.to("cuda"))\n        torch'),
        CLEAN_GPU,
    ),
    "compile-inside": (
        _CPU + _ON_CPU.replace("model(x)", "compiled(x)").replace("\nwith", "\ncompiled = torch.compile(model)\nwith"),
        CLEAN,
    ),
    "grad-on": (
        CLEAN.replace("with torch.inference_mode():", "if True:"),
        CLEAN,
    ),
}
"""By rule: a script with that mistake, and the same without it."""


def _linted(rule: str, script: str) -> Said:
    found = {one.rule: one for one in lint_text(script)}
    mine = found.get(rule)
    words = f"line {mine.line}: {mine.message}" if mine else f"named: {', '.join(found) or 'nothing'}"
    return Said(fires=mine is not None, words=words)


def _case(rule: str, situation: str, verdict: str, *, numbers: tuple[int, ...] = (), reference: str = "") -> Case:
    wrong, right = MISTAKES[rule]
    return Case(
        name=f"benchmark-{rule}",
        numbers=numbers,
        reference=reference or "issue 3: ironlaw lint names timing mistakes",
        situation=situation,
        verdict=verdict,
        cured="the same script without the mistake",
        ask=lambda _: _linted(rule, wrong),
        ask_cured=lambda _: _linted(rule, right),
    )


def _gated(*, halved: bool) -> Said:
    """A ceiling from samples of which every other one may take twice the work, as at half the clock."""

    def measure() -> tuple[Ceiling, ...]:
        rates = []
        for index in range(40):
            start = time.perf_counter()
            for _ in range(2 if halved and index % 2 else 1):
                sum(range(40_000))
            rates.append(40_000 / (time.perf_counter() - start))
        return (ceiling("loop", "1/s", rates),)

    (found,) = settle(measure, clock=ForeignClock(), attempts=3, patience_s=3.0)
    assert isinstance(found, Ceiling)
    words = found.note or f"accepted: {found.low:.3g} to {found.high:.3g} a second"
    if not halved and not found.valid:
        return Said(fires=None, words=f"this machine is not quiet: {words}")
    return Said(fires=not found.valid, words=words)


def _changing(_: Here) -> Said:
    return _gated(halved=True)


def _steady(_: Here) -> Said:
    return _gated(halved=False)


CASES = (
    _case(
        "no-synchronisation",
        "a product on an accelerator is timed without waiting for it",
        "the clock sees only the launch: synchronise before both reads",
        numbers=(55,),
        reference="mlx-benchmark PR 21",
    ),
    _case("no-warm-up", "the first call is among the samples", "warm up before the clock starts"),
    _case("few-samples", "three samples", "too few to tell anything"),
    _case("copy-inside", "inputs are copied to the accelerator between two reads of the clock", "copy before"),
    _case("compile-inside", "torch.compile works in the first timed call", "call once before the clock starts"),
    _case("grad-on", "inference is timed with autograd on", "time under inference_mode"),
    Case(
        name="clock-that-changes",
        numbers=(57,),
        reference="triton-inference-server/server#4875",
        situation="every other sample takes twice as long, as under a governor that halves the clock",
        verdict="no ceiling is taken from that: refused with its spread",
        cured="the same work at one speed",
        ask=_changing,
        ask_cured=_steady,
    ),
)
