"""What every int8 lever asks first: is there something to quantise, and does int8 pay on this machine.

The answer comes from measured kernel rates of the runtime in question, never from a flag alone: a CPU
without VNNI has int8 kernels that are slower than its float ones, and then the refusal says by how much.
For the objectives size and memory the kernels do not matter, and only the share of quantisable weights does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ironlaw.contracts import No, Yes
from ironlaw.measure.kinds import QUANTISABLE
from ironlaw.records import Candidate, Diagnosis, Interval, Machine, Objective, Op, Prediction

VNNI = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm"})
_BY_SIZE = (Objective.SIZE, Objective.MEMORY)
_WORTH = 1.05


def has_dot_product(machine: Machine) -> bool:
    """Whether this CPU multiplies int8 into int32 without a saturating int16 step."""
    return bool(VNNI & set(machine.environment.identity.isa))


def quantisable(diagnosis: Diagnosis, kinds: Iterable[str] = QUANTISABLE) -> tuple[Op, ...]:
    """Operators of those kinds that own weights, in float now."""
    wanted = set(kinds)
    return tuple(
        op
        for op in diagnosis.ledger.ops
        if op.kind in wanted and op.weights_bytes > 0 and op.dtype not in ("int8", "uint8")
    )


def judge(
    candidate: Candidate, diagnosis: Diagnosis, machine: Machine, prediction: Prediction, *, target: str, lever: str
) -> Yes | No:
    """Refuse, with numbers: nothing is quantisable, the int8 kernels here are slower, or the bound is low."""
    ops = quantisable(diagnosis)
    if not ops:
        return No(f"{lever} refused: no convolution or matrix product with weights in float")
    if candidate.goal.objective in _BY_SIZE:
        return Yes()
    slower = _slower(machine, {op.kind for op in ops}, target, diagnosis.threads)
    if slower:
        return No(f"{lever} refused: {slower}")
    if prediction.speedup.high < _WORTH:
        return No(f"{lever} refused: at most {prediction.speedup.high:.2f}x here ({prediction.basis})")
    return Yes()


def for_goal(candidate: Candidate, prediction: Prediction, ops: Iterable[Op], *, width: float) -> Prediction:
    """The prediction with the size of quantised weights; for the objective size it is the gain itself.

    ``width`` is bytes a quantised weight over bytes before (0.25 from float32). Scales, which are
    under 2 % for per-channel weights, widen the interval.
    """
    total = float(candidate.snapshot.weights_bytes)
    touched = min(total, sum(op.weights_bytes for op in ops))
    after = max(1.0, total - touched * (1 - width))
    size = Interval(low=after * 0.95, value=after, high=after * 1.1)
    sized = dataclasses.replace(prediction, size_bytes=size)
    if candidate.goal.objective != Objective.SIZE:
        return sized
    gain = Interval(low=total / size.high, value=total / size.value, high=total / size.low)
    return dataclasses.replace(
        sized, speedup=gain, basis=f"{touched / total:.0%} of the weights become {width:g} as wide"
    )


def _slower(machine: Machine, kinds: set[str], target: str, threads: int) -> str:
    pairs = []
    for kind in sorted(kinds):
        narrow = machine.kernel(target, kind, "int8", threads=threads)
        wide = machine.kernel(target, kind, "fp32", threads=threads)
        if narrow is None or wide is None or narrow.rate.value > wide.rate.value:
            return ""
        pairs.append(f"int8 {kind} reaches {narrow.rate.value / 1e9:.0f} GFLOP/s against {wide.rate.value / 1e9:.0f}")
    return f"{'; '.join(pairs)} in float32 on {target} here" if pairs else ""
