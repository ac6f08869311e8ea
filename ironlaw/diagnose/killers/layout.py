"""Data in the wrong shape: channel counts that miss the vector width, copies that only change the layout."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ironlaw.diagnose.killers.facts import NOTABLE, Facts, calls, named
from ironlaw.diagnose.shares import EAGER, limit
from ironlaw.records import Finding, Op, Term

_LANES = (("avx512f", 16), ("avx2", 8), ("avx", 8), ("asimd", 4), ("neon", 4))
"""fp32 values in a vector register, the widest instruction set first."""
_WHOLE = 8
"""Kernels have a path for every multiple of it, whatever the register."""
_IMAGE_CHANNELS = 4
"""First layers have kernels of their own for so few."""
_ROWS = 8
"""A product with fewer rows is bound by reading its matrix."""
_TINY_CALL = 10.0
_COPIES = ("clone", "copy", "contiguous", "transpose", "permute", "reorder", "to_mkldnn", "to_dense", "reshape_copy")
_JOINING = ("concat", "stack", "pad", "scatter", "index", "fill", "slice", "select", "split")


def channel_width(facts: Facts) -> Finding | None:
    """Time that lanes without a channel take, in convolutions and products: the padding of their kernels."""
    lanes = next((n for flag, n in _LANES if flag in facts.machine.environment.identity.isa), None)
    if lanes is None:
        return None
    wasted = [(op, sizes, _work_s(facts, op) * (1.0 - _used(sizes, lanes))) for op, sizes in _sized(facts.ledger.ops)]
    missing = sorted((one for one in wasted if one[2] > 0.0), key=lambda one: -one[2])
    share = sum(seconds for _, _, seconds in missing) / facts.total_s
    if share < NOTABLE:
        return None
    shown = named(f"{op.name} {'x'.join(map(str, sizes))}" for op, sizes, _ in missing)
    return Finding(
        kind="channel_width",
        attacks=Term.COMPUTE,
        share=min(1.0, share),
        evidence=f"channels in and out that are no multiple of {_WHOLE} ({lanes} fp32 lanes): {shown}{_layers(facts)}",
        remedy=f"make these channel counts multiples of {lanes} (or of {_WHOLE}): the same time gives more channels",
    )


def _layers(facts: Facts) -> str:
    odd = [f"{n}={v}" for n, v in (facts.inspection.widths if facts.inspection else ()) if _misses(int(v or 0))]
    return f"; layers {named(odd)}" if odd else ""


def _misses(size: int) -> bool:
    return size > _IMAGE_CHANNELS and size % _WHOLE != 0


def _used(sizes: Sequence[int], lanes: int) -> float:
    """The share of lanes that hold a channel, over all sizes of one operator."""
    return math.prod(n / (math.ceil(n / lanes) * lanes) for n in sizes if _misses(n))


def _work_s(facts: Facts, op: Op) -> float:
    """Seconds of an operator without its dispatches."""
    dispatch = limit(facts.machine, "dispatch", cost=True)[0] if facts.execution.target == EAGER else None
    fixed_s = _TINY_CALL * dispatch.value * op.calls if dispatch else 0.0
    return max(0.0, (op.time_s or 0.0) - fixed_s)


def _sized(ops: Sequence[Op]) -> list[tuple[Op, tuple[int, ...]]]:
    """Operators with the channel counts that their kernels put into lanes."""
    found = [(op, _channels(op)) for op in ops if op.kind in ("conv", "depthwise", "matmul")]
    return [(op, sizes) for op, sizes in found if sizes]


def _channels(op: Op) -> tuple[int, ...]:
    """Input and output channels of a convolution, columns of a product; empty when the shape does not tell."""
    shapes = [_sizes(one) for one in op.shape.replace(";", ",").split(",")]
    if op.kind == "matmul":
        return _columns([one for one in shapes if len(one) >= 2])
    if len(shapes) < 2 or min(len(shapes[0]), len(shapes[1])) < 3:
        return ()
    inside, weight = shapes[0][1], shapes[1]
    if weight[1] == inside:
        return inside, weight[0]
    if weight[1] == 1:
        return (weight[0],)
    return (inside, weight[1]) if weight[0] == inside else ()


def _columns(matrices: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The columns of a product of matrices whose inner sizes meet, either way round."""
    if len(matrices) < 2:
        return ()
    first, second = matrices[0], matrices[1]
    rows = math.prod(first[:-1])
    if rows < _ROWS:
        return ()
    if first[-1] == second[-2]:
        return (second[-1],)
    return (second[-2],) if first[-1] == second[-1] else ()


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.strip().split("x")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def layout_copies(facts: Facts) -> Finding | None:
    """Operators that move data only to lay it out otherwise."""
    ops = [op for op in facts.ledger.ops if op.kind == "copy" and _relays(op.name)]
    share = facts.share_of(ops)
    if share is None or share < NOTABLE:
        return None
    moved = sum(op.bytes_high for op in ops)
    return Finding(
        kind="layout_copies",
        attacks=Term.MEMORY,
        share=share,
        evidence=(
            f"{calls(ops)} copies a call move {moved / 1e6:.3g} MB only to change their layout "
            f"({named(f'{op.name} {op.shape}'.strip() for op in sorted(ops, key=lambda op: -(op.time_s or 0.0)))})"
        ),
        remedy=(
            "choose one layout and stay in it: lever channels_last for convolutions, transpose weights ahead, drop "
            ".contiguous() that nothing needs; lever runtime moves transposes out of the graph"
        ),
    )


def _relays(name: str) -> bool:
    """Whether an operator, by its name, lays out data anew; joining, padding and indexing are work."""
    lower = name.lower()
    return any(word in lower for word in _COPIES) and not any(word in lower for word in _JOINING)
