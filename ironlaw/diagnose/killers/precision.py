"""Narrow arithmetic without a kernel for it: fp16 and bf16 that are emulated, int8 that is slow or saturates.

Speed is judged by what was measured (ceilings and calibrated kernels of the runtime, or the times of the run's
own operators), never by a flag. Only saturation, which no clock sees, is told from the instruction set.
"""

from __future__ import annotations

from ironlaw.diagnose.killers.facts import Facts, calls, milliseconds, named, worth
from ironlaw.diagnose.shares import limit
from ironlaw.records import Finding, Interval, Op, Term

_TORCH = frozenset({"torch", "aotinductor"})
"""Targets whose products are those that the ceilings were measured with."""
_X86 = frozenset({"x86_64", "amd64", "i686", "i386"})
_DOT_PRODUCT = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8"})
_KERNEL_SLOWER = 0.7
"""A calibrated half kernel below this share of the fp32 kernel's rate is no kernel; rates spread over shapes."""
_INT8_SLOWER = 2.0
"""An int8 operator that takes so many times what fp32 would has no good kernel."""
_COMMON_SHARE = 0.3
"""Of the fp32 ceiling: what ordinary shapes reach, where nothing was calibrated."""
_SMALL_CALL_S = 20e-6


def emulated_precision(facts: Facts) -> Finding | None:
    """Products in fp16 or bf16 where fp32 is faster."""
    for dtype in ("fp16", "bf16"):
        ops = facts.arithmetic(dtype)
        rates = _rates(facts, ops, dtype)
        share = facts.share_of(ops)
        if not ops or rates is None or not worth(share):
            continue
        half, full = rates
        return Finding(
            kind="emulated_precision",
            attacks=Term.COMPUTE,
            share=share,
            evidence=(
                f"{calls(ops)} {dtype} products ({named(op.name for op in ops)}): {dtype} reaches {half / 1e9:.3g} "
                f"GFLOP/s here, fp32 {full / 1e9:.3g}: {full / half:.1f} times slower"
            ),
            remedy=_other_precision(facts, dtype),
        )
    return None


def _rates(facts: Facts, ops: list[Op], dtype: str) -> tuple[float, float] | None:
    """Rates of this dtype and of fp32, when the first is surely lower."""
    threads, target = facts.execution.threads, facts.execution.target
    if not ops:
        return None
    kind = max(ops, key=lambda op: op.time_s or op.flops or 0.0).kind
    one, other = (facts.machine.kernel(target, kind, name, threads=threads) for name in (dtype, "fp32"))
    if one is not None and other is not None:
        slower = one.rate.value < _KERNEL_SLOWER * other.rate.value
        return (one.rate.value, other.rate.value) if slower else None
    if target not in _TORCH:
        return None
    half, full = (_ceiling(facts, name) for name in (dtype, "fp32"))
    return (half.value, full.value) if half and full and half.high < full.low else None


def _ceiling(facts: Facts, dtype: str) -> Interval | None:
    return limit(facts.machine, "matmul", dtype=dtype, threads=facts.execution.threads)[0]


def _other_precision(facts: Facts, dtype: str) -> str:
    full, brain = _ceiling(facts, "fp32"), _ceiling(facts, "bf16")
    if dtype == "fp16" and full and brain and brain.low > full.high:
        return f"lever bf16: it reaches {brain.value / 1e9:.3g} GFLOP/s here; or keep fp32"
    return "keep fp32 for arithmetic on this CPU; to save memory, store narrow and compute in fp32"


def int8_slow(facts: Facts) -> Finding | None:
    """int8 operators that take longer than the same products would in fp32: by their times, else by ceilings."""
    ops = facts.arithmetic("int8")
    share = facts.share_of(ops)
    if not ops or not worth(share):
        return None
    evidence = _untimed(facts) if share is None else _against_float(facts, [op for op in ops if op.time_s])
    if not evidence:
        return None
    return Finding(
        kind="int8_slow",
        attacks=Term.COMPUTE,
        share=share,
        evidence=f"{calls(ops)} int8 operators ({named(op.name for op in ops)}): {evidence}",
        remedy=(
            "lever int8_static (QDQ with fused kernels) or int8_openvino in place of dynamic or operator-wise int8; "
            "where no int8 kernel is faster, keep fp32 or lever bf16, and take int8 for size only"
        ),
    )


def _untimed(facts: Facts) -> str:
    int8, full = _ceiling(facts, "int8"), _ceiling(facts, "fp32")
    if facts.execution.target not in _TORCH or int8 is None or full is None or int8.high >= full.low:
        return ""
    return f"int8 products reach {int8.value / 1e9:.3g} GOP/s here, fp32 {full.value / 1e9:.3g} GFLOP/s: no int8 kernel"


def _against_float(facts: Facts, ops: list[Op]) -> str:
    parts = [(op.time_s or 0.0, _float_seconds(facts, op)) for op in ops]
    known = [(took, float_s) for took, float_s in parts if float_s is not None]
    took, would = sum(one for one, _ in known), sum(float_s for _, float_s in known if float_s is not None)
    if not known or took < _INT8_SLOWER * would:
        return ""
    return f"they take {milliseconds(took)}, the same in fp32 about {milliseconds(would)}"


def _float_seconds(facts: Facts, op: Op) -> float | None:
    """What an int8 operator would take in fp32: at the calibrated rate's low end, with four times the bytes."""
    threads = facts.execution.threads
    kernel = facts.machine.kernel(facts.execution.target, op.kind, "fp32", threads=threads)
    full, dram = _ceiling(facts, "fp32"), limit(facts.machine, "dram", threads=threads)[0]
    if kernel is not None and "FLOP" in kernel.unit.upper():
        rate, call_s = kernel.rate.low, kernel.call_s
    elif full is not None:
        rate, call_s = _COMMON_SHARE * full.low, _SMALL_CALL_S
    else:
        return None
    if op.flops is None or rate <= 0.0:
        return None
    moving_s = 4.0 * op.bytes_low / dram.low if dram else 0.0
    return max(op.flops / rate, moving_s) + op.calls * call_s


def int8_saturation(facts: Facts) -> Finding | None:
    """Unsigned by signed int8 products on a CPU whose instruction for them adds pairs in 16 bits."""
    identity = facts.machine.environment.identity
    if identity.architecture.lower() not in _X86 or not identity.isa or _DOT_PRODUCT & set(identity.isa):
        return None
    seen = facts.inspection.saturating if facts.inspection else None
    if not seen:
        return None
    return Finding(
        kind="int8_saturation",
        attacks=None,
        share=None,
        evidence=(
            f"{seen} operators multiply u8 by s8 weights that use the whole range; this CPU has no int8 dot product "
            "(VNNI), so that pairs of products saturate at 16 bits"
        ),
        remedy="reduce_range=True (7-bit weights) in int8_static or int8_dynamic, or weights u8; check quality here",
    )
