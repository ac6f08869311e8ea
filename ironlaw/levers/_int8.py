"""What every int8 lever asks first: is there something to quantise, and does int8 pay on this machine.

The answer comes from measured kernel rates of the runtime in question, never from a flag alone: a CPU
without VNNI has int8 kernels that are slower than its float ones, and then the refusal says by how much.
For the objectives size and memory the kernels do not matter, and only the share of quantisable weights does; nor does a
slower kernel decide about energy, which narrow products and moves may save all the same: it is tried and measured.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ironlaw import predict
from ironlaw.contracts import Lever, No, Yes
from ironlaw.levers._changes import changed
from ironlaw.measure.kinds import QUANTISABLE
from ironlaw.records import (
    Candidate,
    Change,
    Diagnosis,
    Interval,
    Ledger,
    Machine,
    ModelFile,
    Objective,
    Op,
    Prediction,
    Scalar,
    Term,
)

VNNI = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm"})
NOT_BY_TIME = (Objective.SIZE, Objective.MEMORY, Objective.ENERGY)
_WORTH = 1.05
_FEATURE_NORM = re.compile(r"layer_?norm|rms_?norm|SimplifiedLayerNorm", re.IGNORECASE)
_NAMED = 20
"""Operators left in float that are listed by name."""


def has_dot_product(machine: Machine) -> bool:
    """Whether this CPU multiplies int8 into int32 without a saturating int16 step."""
    return bool(VNNI & set(machine.environment.identity.isa))


def pass_s(candidate: Candidate, diagnosis: Diagnosis) -> float:
    """Seconds that one pass over the calibration batches takes in a runtime: without eager's paging and dispatch."""
    eager_only = diagnosis.seconds(Term.PAGING) + diagnosis.seconds(Term.LATENCY)
    return (diagnosis.total_s - eager_only) * max(1, candidate.snapshot.calibration_batches)


def has_attention(diagnosis: Diagnosis) -> bool:
    """Whether the run is of a transformer: attention, or a norm over features (a batch norm is not one)."""
    return any(op.kind == "attention" or _FEATURE_NORM.search(op.name) for op in diagnosis.ledger.ops)


def quantisable(diagnosis: Diagnosis, kinds: Iterable[str] = QUANTISABLE) -> tuple[Op, ...]:
    """Operators of those kinds that own weights, in float now."""
    wanted = set(kinds)
    return tuple(
        op
        for op in diagnosis.ledger.ops
        if op.kind in wanted and op.weights_bytes > 0 and op.dtype not in ("int8", "uint8")
    )


def judge(
    candidate: Candidate,
    diagnosis: Diagnosis,
    machine: Machine,
    prediction: Prediction,
    *,
    target: str,
    lever: str,
    kinds: Iterable[str] = QUANTISABLE,
) -> Yes | No:
    """Refuse, with numbers: nothing is quantisable, the int8 kernels here are slower, or the bound is low."""
    ops = quantisable(diagnosis, kinds)
    if not ops:
        return No(f"{lever} refused: no convolution or matrix product with weights in float")
    if candidate.goal.objective in NOT_BY_TIME:
        return Yes()
    slower = _slower(machine, {op.kind for op in ops}, target, diagnosis.threads)
    if slower:
        return No(f"{lever} refused: {slower}")
    if prediction.speedup.high < _WORTH:
        return No(f"{lever} refused: at most {prediction.speedup.high:.2f}x here ({prediction.basis})")
    return Yes()


def partly_moved(diagnosis: Diagnosis, machine: Machine, ops: Sequence[Op], *, target: str, threads: int) -> Prediction:
    """Only ``ops`` at int8 rates, the rest of the run at the target's float rates."""
    floats = predict.moved(diagnosis, machine, target=target, dtype="fp32", threads=threads)
    gain = gain_over_float(diagnosis, machine, ops, target=target, threads=threads)
    if gain is None:
        return floats
    basis = f"{floats.basis}; then int8 for {len(ops)} operators gives {gain.value:.2f}x of that"
    return Prediction(speedup=floats.speedup.times(gain), basis=basis)


def with_embeddings(diagnosis: Diagnosis, ops: Sequence[Op], wanted: bool) -> tuple[Op, ...]:
    """``ops`` and, where ``wanted``, the embeddings: their tables shrink, their time does not."""
    return (*ops, *(quantisable(diagnosis, ("embedding",)) if wanted else ()))


def gain_over_float(
    diagnosis: Diagnosis, machine: Machine, ops: Sequence[Op], *, target: str, threads: int
) -> Interval | None:
    """What int8 for ``ops`` alone gives over the same runtime in float; None when nothing was calibrated."""
    part = dataclasses.replace(diagnosis.ledger, ops=tuple(ops))

    def seconds(ledger: Ledger, dtype: str) -> Interval | None:
        return predict.seconds(ledger, machine, target=target, dtype=dtype, threads=threads)

    whole, wide, narrow = seconds(diagnosis.ledger, "fp32"), seconds(part, "fp32"), seconds(part, "int8")
    return None if whole is None or wide is None or narrow is None else _partial_gain(whole, wide, narrow)


def _partial_gain(whole: Interval, wide: Interval, narrow: Interval) -> Interval:
    rest = max(0.0, whole.value - wide.value)
    total = max(whole.value, wide.value)
    return Interval(
        low=total / (rest + narrow.high), value=total / (rest + narrow.value), high=total / (rest + narrow.low)
    )


def widened(prediction: Prediction, *, low: float) -> Prediction:
    """The lower end of the gain taken down by a factor, for a cost that no rate holds."""
    speedup = prediction.speedup
    return dataclasses.replace(prediction, speedup=dataclasses.replace(speedup, low=speedup.low * low))


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
    if candidate.goal.objective != Objective.SIZE or not total:
        return sized
    gain = Interval(low=total / size.high, value=total / size.value, high=total / size.low)
    return dataclasses.replace(
        sized, speedup=gain, basis=f"{touched / total:.0%} of the weights become {width:g} as wide"
    )


def finished(
    lever: Lever,
    candidate: Candidate,
    settings: Any,
    *,
    model: ModelFile,
    target: str,
    eligible: frozenset[str],
    done: frozenset[str],
    facts: dict[str, Scalar],
) -> tuple[Candidate, Change]:
    """The candidate with its quantised model on that runtime, and its change: a no-op when nothing was quantised.

    ``eligible`` and ``done`` are operator names before and after. Options of another runtime are dropped.
    """
    before = candidate.execution
    options = before.options if before.target == target else ()
    counted: dict[str, Scalar] = {
        "quantised": len(done & eligible),
        "eligible": len(eligible),
        "left_in_float": ", ".join(sorted(eligible - done)[:_NAMED]),
    }
    after, change = changed(
        lever,
        candidate,
        settings,
        model=model,
        execution=dataclasses.replace(before, target=target, precision="fp32", options=options),
        facts={**counted, **facts},
    )
    change = dataclasses.replace(change, no_op=not done & eligible)
    return dataclasses.replace(after, changes=(*candidate.changes, change)), change


def _slower(machine: Machine, kinds: set[str], target: str, threads: int) -> str:
    pairs = []
    for kind in sorted(kinds):
        narrow = machine.kernel(target, kind, "int8", threads=threads)
        wide = machine.kernel(target, kind, "fp32", threads=threads)
        if narrow is None or wide is None or narrow.rate.value > wide.rate.value:
            return ""
        pairs.append(f"int8 {kind} reaches {narrow.rate.value / 1e9:.0f} GFLOP/s against {wide.rate.value / 1e9:.0f}")
    return f"{'; '.join(pairs)} in float32 on {target} here" if pairs else ""
