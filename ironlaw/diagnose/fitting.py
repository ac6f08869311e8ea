"""Whether a ledger's weights and activations fit into a published machine's memory.

A ledger knows what is read and written, not what lives at the same time. So the activations are an interval: at
least the operands of the widest operator, at most everything that is ever written or read; in between the answer
is undetermined. A microcontroller keeps weights in flash and activations in SRAM; elsewhere both share one memory.
It says nothing of code, stacks and a framework's own memory.
"""

from __future__ import annotations

from ironlaw.hardware import PublishedMachine
from ironlaw.records import Ledger

_FLOAT32 = frozenset({"float32", "fp32"})


def fit(ledger: Ledger, there: PublishedMachine, weights_bytes: float | None = None) -> tuple[bool | None, str]:
    """Whether it fits (None: undetermined) and why. Without ``weights_bytes`` those that the call reads count."""
    weights = weights_bytes if weights_bytes is not None else sum(op.weights_bytes for op in ledger.ops)
    least = max((_own(op.bytes_high, op.weights_bytes) / max(1, op.calls) for op in ledger.ops), default=0.0)
    most = sum(_own(op.bytes_high, op.weights_bytes) for op in ledger.ops)
    if there.kind == "mcu":
        return _in_two(there, ledger, weights, least, most)
    if there.memory_bytes is None:
        return None, "its memory is not fixed by the machine (no size is published)"
    return _within("memory", there.memory_bytes.value, weights + least, weights + most)


def _in_two(
    there: PublishedMachine, ledger: Ledger, weights: float, least: float, most: float
) -> tuple[bool | None, str]:
    if there.flash_bytes is None or there.memory_bytes is None:
        return None, "its flash or SRAM is not published"
    flash = weights <= there.flash_bytes.value
    sram, text = _within("SRAM", there.memory_bytes.value, least, most)
    words = f"weights {_size(weights)} of {_size(there.flash_bytes.value)} flash; activations {text}"
    if not flash and all(op.dtype in _FLOAT32 for op in ledger.ops if op.weights_bytes):
        words += f"; at int8 the weights would take about {_size(weights / 4.0)}"
    return (False if not flash or sram is False else sram), words


def _within(what: str, limit: float, least: float, most: float) -> tuple[bool | None, str]:
    if least > limit:
        return False, f"at least {_size(least)} of {_size(limit)} {what}"
    if most <= limit:
        return True, f"at most {_size(most)} of {_size(limit)} {what}"
    return None, f"between {_size(least)} and {_size(most)} of {_size(limit)} {what}: undetermined"


def _own(high: float, weights: float) -> float:
    return max(0.0, high - weights)


def _size(value: float) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"
