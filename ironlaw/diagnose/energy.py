"""Modelled energy of one call, from its ledger: what arithmetic and moving data cost where somebody measured it.

Without counters nothing better is honest: events counted here times published energies of one event, labelled as
modelled. The table is Jouppi's for 7 nm, the newest that holds every dtype; it is not scaled to this CPU, whose process
is not known, so that only ratios between points mean something. Instruction fetch, idle power and leakage are left out.
"""

from __future__ import annotations

from ironlaw.laws.energy import event_j, mac_j
from ironlaw.records import Energy, Ledger, Op

PROCESS = "7nm"
UNKNOWN = Energy(value=None, source="unknown")
_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8", "uint8": "int8"}
_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0}


def modelled(ledger: Ledger, *, precision: str, own_form: bool = True) -> Energy:
    """Joules of one call by part: arithmetic, caches, memory.

    ``precision`` is the arithmetic that the runtime was asked for: float32 operators count as that. ``own_form``
    False says that the ledger is of another form of the model (OpenVINO's own files cannot be counted), whose
    dtypes say nothing of this one. Unknown where an operator could not be counted or its dtype has no published energy.
    """
    if not ledger.ops or ledger.uncounted or not own_form:
        return UNKNOWN
    arithmetic = caches = memory = 0.0
    for op in ledger.ops:
        dtype = _dtype(op, precision)
        if dtype is None:
            return UNKNOWN
        narrower = _BYTES[dtype] / _BYTES["fp32"] if op.dtype == "float32" else 1.0
        arithmetic += (op.flops or 0.0) / 2.0 * mac_j(dtype=dtype, process=PROCESS)
        caches += narrower * op.bytes_high / 8.0 * event_j(event="sram_1mb_64bit", process=PROCESS)
        memory += narrower * op.bytes_low / 8.0 * event_j(event="dram_64bit", process=PROCESS)
    parts = (("arithmetic", arithmetic), ("caches", caches), ("memory", memory))
    return Energy(value=arithmetic + caches + memory, source="modelled", parts=parts)


def _dtype(op: Op, precision: str) -> str | None:
    """The dtype of its products; an operator without arithmetic only moves data, in whatever dtype."""
    if op.dtype == "float32":
        return precision if precision in _BYTES else None
    return _DTYPES.get(op.dtype) or (None if op.flops else "fp32")
