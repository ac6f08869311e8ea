"""Other machines: recorded ledgers of real models at published peaks."""

from __future__ import annotations

from ironlaw import hardware
from ironlaw.records import Elsewhere, OpElsewhere, Term
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here
from ironlaw.validating.recorded import ledger, on

_CPU, _GPU = "raspberry-pi-5", "t4"
_SAME, _OTHER = 1.1, 1.3
_ACCEPTED = 2.5
"""Tokens a round that a good draft of four gives (Leviathan et al. 2023 report 2 to 3)."""


# ---------------------------------------------------------------- operations are not time


def _rank_by_target(one: str, other: str) -> Said:
    """How much faster ``other`` is, by its operations and by its bounds on two targets."""
    books = [ledger(name, hardware.machine(_CPU)) for name in (one, other)]
    by_flops = books[0].flops / books[1].flops
    by_target = {machine: _times_faster(one, other, machine) for machine in (_CPU, _GPU)}
    if None in by_target.values():
        return Said(fires=None, words="a time is not bounded on both sides")
    ratios = [ratio for ratio in by_target.values() if ratio is not None]
    apart = max(ratios) / min(ratios)
    off = max(by_flops / ratio for ratio in ratios)
    said = ", ".join(f"{ratio:.2f}x on {machine}" for machine, ratio in zip(by_target, ratios, strict=True))
    words = f"{other} needs {by_flops:.1f} times fewer operations than {one}; at peaks it is {said}"
    if apart < _SAME and off < _SAME:
        return Said(fires=False, words=words)
    return Said(fires=True if apart > _OTHER and off > _OTHER else None, words=words)


def _times_faster(one: str, other: str, machine: str) -> float | None:
    first, second = (on(name, machine).overlapped_bound_s for name in (one, other))
    if first is None or second is None or first.high > _OTHER * first.low or second.high > _OTHER * second.low:
        return None
    return first.value / second.value


# ---------------------------------------------------------------- weights at large batches


def _products(found: Elsewhere) -> list[OpElsewhere]:
    return [op for op in found.ops if op.kind == "matmul"]


def _weights_not_the_limit(name: str, machine: str) -> Said:
    """Every product with weights is on the compute side: narrower weights save no time there."""
    found = on(name, machine)
    sides = {op.side for op in _products(found)}
    words = f"on {found.title} products are bound by {', '.join(sorted(str(s or 'undetermined') for s in sides))}"
    if None in sides or len(sides) > 1:
        return Said(fires=None, words=words)
    return Said(fires=sides == {Term.COMPUTE}, words=words)


def _draft_does_not_pay(batch: int, machine: str) -> Said:
    """Verifying five tokens costs more than a good draft brings, in products at that machine's peaks."""
    once, five = (_products(on(f"llama2-7b-decode-{n}", machine)) for n in (batch, 5 * batch))
    low, high = _cost(once, five)
    words = f"checking 5 tokens at batch {batch} costs {low:.2f} to {high:.2f} steps in products; drafts bring 2 to 3"
    if low > _ACCEPTED:
        return Said(fires=True, words=words)
    return Said(fires=False if high < _ACCEPTED else None, words=words)


def _cost(once: list[OpElsewhere], five: list[OpElsewhere]) -> tuple[float, float]:
    least = [sum(_seconds(op, "low") for op in ops) for ops in (once, five)]
    most = [sum(_seconds(op, "high") for op in ops) for ops in (once, five)]
    return least[1] / most[0], most[1] / least[0]


def _seconds(op: OpElsewhere, end: str) -> float:
    traffic: float = getattr(op.traffic_s, end) if op.traffic_s else 0.0
    return max(op.arithmetic_s or 0.0, traffic)


def _rank(_: Here) -> Said:
    return _rank_by_target("resnet50-32", "efficientnet-lite0-32")


def _rank_of_itself(_: Here) -> Said:
    return _rank_by_target("resnet50-32", "resnet50-16")


CASES = (
    Case(
        name="rank-by-target",
        numbers=(29,),
        reference="tensorflow/tensorflow#12132",
        situation="EfficientNet-Lite0 and ResNet-50 at batch 32, on a Raspberry Pi 5 and on a T4",
        verdict="ten times fewer operations are not ten times faster, and not as much on one as on the other",
        cured="ResNet-50 at batch 32 and 16: twice the time on both",
        ask=_rank,
        ask_cured=_rank_of_itself,
        replayed=True,
    ),
    Case(
        name="narrow-weights-at-a-large-batch",
        numbers=(13, 10),
        reference="casper-hansen/AutoAWQ#106; NVIDIA/FasterTransformer#265",
        situation="a decoding step of Llama 2 7B for 256 sequences on an A100",
        verdict="products are compute-bound there: narrower weights save memory, not time",
        cured="one sequence: products wait for weights",
        ask=lambda _: _weights_not_the_limit("llama2-7b-decode-256", "a100-sxm4-40gb"),
        ask_cured=lambda _: _weights_not_the_limit("llama2-7b-decode-1", "a100-sxm4-40gb"),
        replayed=True,
    ),
    Case(
        name="speculation-reverses",
        numbers=(37,),
        reference="vllm-project/vllm#17984",
        situation="drafts of four tokens verified for 256 sequences of Llama 2 7B on an A100",
        verdict="verifying costs more steps than a draft brings",
        cured="one sequence: verifying is almost free",
        ask=lambda _: _draft_does_not_pay(256, "a100-sxm4-40gb"),
        ask_cured=lambda _: _draft_does_not_pay(1, "a100-sxm4-40gb"),
        replayed=True,
    ),
)
