"""What a graph runtime is left with of a ledger.

Fusion is told from the ledger alone, by counting: a graph runtime drops views, folds a batch norm into the
convolution before it, and runs an activation, bias or residual addition inside the convolution or product that
made its operand; so as many of them vanish as there are such producers. A recurrent layer that eager torch writes out
step by step is one operator to a graph runtime. It refuses to say which ones vanish.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ironlaw.records import Ledger, Op

PRODUCERS = frozenset({"conv", "depthwise", "matmul"})
_BATCH_NORMS = ("batch_norm", "batchnormalization")
_ACTIVATIONS = frozenset(
    [
        "relu",
        "relu6",
        "hardtanh",
        "clamp",
        "clamp_min",
        "clamp_max",
        "clip",
        "sigmoid",
        "silu",
        "hardswish",
        "hardsigmoid",
        "gelu",
        "tanh",
        "leaky_relu",
        "leakyrelu",
        "elu",
        "mish",
        "softplus",
        "swish",
        "prelu",
        "erf",
    ]
)
_ADDS = frozenset({"add", "sum", "sub"})
_GATES = "unsafe_split"
"""How torch's own recurrent cells, and nothing else of it, part their gates."""


def fused(ledger: Ledger) -> tuple[Op, ...]:
    """The operators that a graph runtime is left with; calls and work are scaled where some of several vanish."""
    producers = sum(op.calls for op in ledger.ops if op.kind in PRODUCERS)
    convolutions = sum(op.calls for op in ledger.ops if op.kind in ("conv", "depthwise"))
    kept = [op for op in rolled(ledger.ops) if op.kind != "view"]
    kept = _drop(kept, _is_batch_norm, convolutions)
    left = producers - sum(op.calls for op in kept if base_name(op) in _ACTIVATIONS)
    kept = _drop(kept, lambda op: base_name(op) in _ACTIVATIONS, producers)
    return tuple(_drop(kept, lambda op: base_name(op) in _ADDS and op.kind == "elementwise", max(0, left)))


def rolled(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Recurrent cells that torch wrote out, which it splits into gates at every step, as one operator again.

    Its shape says how many steps it has in all; that of its input is not known any more.
    """
    splits = sum(op.calls for op in ops if base_name(op) == _GATES)
    cells = {"lstm": splits, "gru": splits // 2}
    cell, steps = next(((name, n) for name, n in cells.items() if n > 1 and _products(ops, n)), ("", 0))
    if not steps:
        return ops
    products = _products(ops, steps)
    inside = {id(op) for op in ops if op.calls % steps == 0 and op.kind in ("elementwise", "view")}
    inside |= {id(op) for op in products}
    timed = [op.time_s for op in ops if id(op) in inside and op.time_s is not None]
    weights = sum(op.weights_bytes for op in products) / steps
    whole = dataclasses.replace(
        products[0],
        name=cell,
        kind="recurrent",
        calls=1,
        shape=f"{steps}x1x1",
        flops=sum(op.flops or 0.0 for op in products),
        bytes_low=sum(op.bytes_low for op in products),
        bytes_high=sum(op.bytes_high - op.weights_bytes for op in products) + weights,
        weights_bytes=weights,
        time_s=sum(timed) if timed else None,
    )
    return (*(op for op in ops if id(op) not in inside), whole)


def _products(ops: tuple[Op, ...], steps: int) -> list[Op]:
    return [op for op in ops if op.kind == "matmul" and op.calls == steps]


def base_name(op: Op) -> str:
    """The operator's name without its namespace, overload and the underscores of in-place and internal variants."""
    return op.name.rsplit("::", 1)[-1].split(".")[0].lower().strip("_")


def _is_batch_norm(op: Op) -> bool:
    return op.kind == "norm" and any(word in base_name(op) for word in _BATCH_NORMS)


def _drop(ops: list[Op], matches: Callable[[Op], bool], budget: int) -> list[Op]:
    """Take up to ``budget`` calls away from the operators that match, in order."""
    kept = []
    for op in ops:
        gone = min(op.calls, budget) if matches(op) else 0
        budget -= gone
        if gone == 0:
            kept.append(op)
        elif gone < op.calls:
            kept.append(_fewer(op, op.calls - gone))
    return kept


def _fewer(op: Op, calls: int) -> Op:
    part = calls / op.calls
    return dataclasses.replace(
        op,
        calls=calls,
        flops=None if op.flops is None else op.flops * part,
        bytes_low=op.bytes_low * part,
        bytes_high=op.bytes_high * part,
        weights_bytes=op.weights_bytes * part,
        time_s=None if op.time_s is None else op.time_s * part,
    )
