"""Compression that only pretends: numbers rounded to int8 and computed in fp32, zeros that are multiplied."""

from __future__ import annotations

from ironlaw.diagnose.killers.facts import Facts, calls, named
from ironlaw.records import Finding, Op, Term

_MOSTLY = 0.5
_ROUNDING = ("fake_quant", "quantizelinear", "quantize_per", "dequantize")
_SPARSE = ("sparse", "csr", "semi_structured")


def fake_quantisation(facts: Facts) -> Finding | None:
    """Rounding operators in a run whose products are all in float: quantised in value, not in arithmetic."""
    rounding = [op for op in facts.ledger.ops if op.kind != "view" and _rounds(op)]
    if facts.execution.option("compile"):  # the ledger is of the model before the compiler fuses these
        return None
    if not any(_takes_float(op) for op in rounding) or facts.arithmetic("int8") or not facts.arithmetic():
        return None
    share = facts.share_of(rounding)
    return Finding(
        kind="fake_quantisation",
        attacks=Term.COMPUTE,
        share=share,
        evidence=(
            f"{calls(rounding)} operators round to int8 and back ({named(op.name for op in rounding)}), and none of "
            f"{calls(facts.arithmetic())} products and convolutions runs in int8"
        ),
        remedy=(
            "convert after training: lever int8_static or int8_openvino from the float model, or "
            "torch.ao.quantization.convert; what ships must show int8 kernels in its certificate"
        ),
    )


def _rounds(op: Op) -> bool:
    return any(word in op.name.lower() for word in _ROUNDING)


def _takes_float(op: Op) -> bool:
    """Not only a table of int8 weights that is widened: something is rounded."""
    name = op.name.lower()
    return "fake_quant" in name or ("quantize" in name and "dequantize" not in name)


def masked_weights(facts: Facts) -> Finding | None:
    """Weights that are mostly exact zeros in kernels that multiply every one of them."""
    seen = facts.inspection
    dense = [op for op in facts.arithmetic() if not any(word in op.name.lower() for word in _SPARSE)]
    if seen is None or seen.zero_share is None or seen.zero_share < _MOSTLY or not dense:
        return None
    share = facts.share_of(op for op in dense if op.weights_bytes > 0.0)
    return Finding(
        kind="masked_weights",
        attacks=Term.COMPUTE,
        share=None if share is None else share * seen.zero_share,
        evidence=(
            f"{seen.zero_share:.0%} of the weights are exact zeros "
            f"({named(f'{name} {float(value or 0.0):.0%}' for name, value in seen.zeros)}), and all "
            f"{calls(dense)} products and convolutions are dense"
        ),
        remedy=(
            "zeros save size, not time: remove whole channels or heads instead (structured pruning), or encode them "
            "for size only; dense kernels take the same time for a zero"
        ),
    )
