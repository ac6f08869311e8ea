"""What narrow weights with float activations give: a law of bytes first, of arithmetic as the batch grows.

Why apart from int8: there both operands are narrow and products run at another rate; here only the weights are, so a
product gains while it waits for them (one row, decoding) and loses what unpacking costs once arithmetic decides.
Times are a roofline: arithmetic with the cost of unpacking, or the packed bytes at the rate at which weights arrive,
whichever is longer. Costs of kernels are written as operations per weight and as a share of a measured rate, so that
they carry over to machines of other speeds. It refuses to predict from nothing: without a rate of the runtime there
is no gain to state.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ironlaw import predict
from ironlaw.contracts import No, Yes
from ironlaw.levers import _int8
from ironlaw.rates import Z90, Rate, Surroundings, op_seconds, rate_of, surroundings
from ironlaw.records import Candidate, Diagnosis, Interval, Ledger, Machine, Op, Prediction

WORTH = 1.02
ROUNDED = "int8"
COMPUTES = (ROUNDED, "float")
_PACKED_ALREADY = frozenset({"MatMulNBits"})
_FLOAT_BYTES = 4.0
_MOST_BATCH = 65536
_FEW_ROWS = 1.5
_RUNTIME_SIGMA = 0.15
"""Log deviation by which a packed kernel is slower than the rate that it is derived from; never faster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """How weights are stored. ``bits`` a weight, ``extra_bytes`` a weight for scales and zero points."""

    bits: int
    extra_bytes: float

    @property
    def weight_bytes(self) -> float:
        return self.bits / 8.0 + self.extra_bytes

    @property
    def width(self) -> float:
        """Bytes after over bytes before, from float32."""
        return self.weight_bytes / _FLOAT_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """What a runtime's packed product costs.

    ``unpack`` is operations a weight at the float rate, ``unpack_row`` the same where there is a kernel of its own for
    a single row; ``share`` is the part of the runtime's int8 rate that products reach whose rows are rounded to int8
    in groups (None: float arithmetic).
    """

    unpack: Interval
    share: Interval | None = None
    unpack_row: Interval | None = None

    def unpacking(self, op: Op) -> Interval:
        """Operations a weight for a product with as many rows as this one."""
        rows = (op.flops or 0.0) / max(1.0, 2.0 * _weights(op))
        return self.unpack_row if self.unpack_row and rows < _FEW_ROWS else self.unpack


def packing(*, bits: int, group: int, scale_bytes: float, zero_bytes: float = 0.0) -> Packing:
    """One scale, and for asymmetric weights one zero point, a group of weights along the inner dimension."""
    return Packing(bits=bits, extra_bytes=(scale_bytes + zero_bytes) / group)


def linear(diagnosis: Diagnosis, group: int) -> tuple[Op, ...]:
    """Products with stored float weights whose inner dimension, where it is known, holds a group."""
    found = _int8.quantisable(diagnosis, ("matmul",))
    return tuple(op for op in found if op.name not in _PACKED_ALREADY and (inner(op) or group) >= group)


def inner(op: Op) -> int | None:
    """The inner dimension of a product, from the shapes of its operands; None where these do not show it."""
    shapes = [[int(size) for size in word.split("x")] for word in re.findall(r"\d+(?:x\d+)+", op.shape)]
    if len(shapes) < 2:
        return None
    return shapes[0][-1] if shapes[0][-1] in shapes[1][-2:] else None


def predicted(
    candidate: Candidate,
    diagnosis: Diagnosis,
    machine: Machine,
    ops: Sequence[Op],
    *,
    target: str,
    pack: Packing,
    kernel: Kernel,
) -> Prediction:
    """The gain over the candidate: the move to the runtime in float, then narrow weights on top of that."""
    threads = candidate.execution.threads
    floats = predict.moved(diagnosis, machine, target=target, dtype="fp32", threads=threads)
    gain = gain_over_float(diagnosis, machine, ops, target=target, threads=threads, pack=pack, kernel=kernel)
    if gain is None:
        return _int8.for_goal(candidate, floats, ops, width=pack.width)
    limit = crossover_batch(diagnosis, machine, ops, target=target, threads=threads, pack=pack, kernel=kernel)
    basis = (
        f"{floats.basis}; then {pack.bits}-bit weights for {len(ops)} kinds of products give {gain.value:.2f}x of that"
        f" at batch {diagnosis.ledger.batch} ({pays(limit)})"
    )
    prediction = Prediction(speedup=floats.speedup.times(gain), basis=basis)
    return _int8.for_goal(candidate, prediction, ops, width=pack.width)


def pays(limit: int | None) -> str:
    """A crossover for people."""
    if limit is None:
        return f"pays at every batch up to {_MOST_BATCH}"
    return f"pays up to batch {limit}" if limit else "pays at no batch"


def gain_over_float(
    diagnosis: Diagnosis,
    machine: Machine,
    ops: Sequence[Op],
    *,
    target: str,
    threads: int,
    pack: Packing,
    kernel: Kernel,
) -> Interval | None:
    """What narrow weights of ``ops`` give over the same runtime in float; None where nothing was calibrated."""

    def seconds(ledger: Ledger) -> Interval | None:
        return predict.seconds(ledger, machine, target=target, dtype="fp32", threads=threads)

    whole, wide = seconds(diagnosis.ledger), seconds(dataclasses.replace(diagnosis.ledger, ops=tuple(ops)))
    narrow = packed_seconds(diagnosis.ledger, machine, ops, target=target, threads=threads, pack=pack, kernel=kernel)
    if whole is None or wide is None or narrow is None:
        return None
    rest, total = max(0.0, whole.value - wide.value), max(whole.value, wide.value)
    low, value, high = (total / (rest + x) for x in (narrow.high, narrow.value, narrow.low))
    return Interval(low=low, value=value, high=high)


def packed_seconds(
    ledger: Ledger,
    machine: Machine,
    ops: Sequence[Op],
    *,
    target: str,
    threads: int,
    pack: Packing,
    kernel: Kernel,
) -> Interval | None:
    """Seconds of ``ops`` with packed weights: their arithmetic and unpacking, or their bytes, whichever is longer."""
    rate = _arithmetic(machine, target, threads, kernel)
    if rate is None:
        return None
    packed = _packed(ledger, ops, pack)
    around = surroundings(packed, machine, "fp32", threads)

    def total(costs: list[float], part: float, spread: float) -> float:
        return sum(_one(op, rate, cost, part, spread, around, pack) for op, cost in zip(ops, costs, strict=True))

    share, sigma = kernel.share, math.exp(Z90 * _RUNTIME_SIGMA)
    unpack = [kernel.unpacking(op) for op in ops]
    return Interval(
        low=total([u.low for u in unpack], share.high if share else 1.0, 1.0),
        value=total([u.value for u in unpack], share.value if share else 1.0, 1.0),
        high=total([u.high for u in unpack], share.low if share else 1.0, sigma),
    )


def crossover_batch(
    diagnosis: Diagnosis,
    machine: Machine,
    ops: Sequence[Op],
    *,
    target: str,
    threads: int,
    pack: Packing,
    kernel: Kernel,
) -> int | None:
    """The largest batch at which narrow weights of ``ops`` still pay; 0 for none, None where no batch ends it.

    The products alone are compared: their rows grow with the batch, their weights do not. Both sides come from the
    model of the prediction, so that the two never contradict each other. With flat rates and one shape it is
    :func:`ironlaw.laws.intensity.packed_rows` in examples instead of rows.
    """
    ledger = diagnosis.ledger

    def wins(batch: int) -> bool:
        there = [_at_batch(op, batch / max(1, ledger.batch)) for op in ops]
        part = dataclasses.replace(ledger, ops=tuple(there))
        wide = predict.seconds(part, machine, target=target, dtype="fp32", threads=threads)
        narrow = packed_seconds(part, machine, there, target=target, threads=threads, pack=pack, kernel=kernel)
        return wide is not None and narrow is not None and narrow.value < wide.value

    return _last(wins)


def judge(
    candidate: Candidate,
    diagnosis: Diagnosis,
    machine: Machine,
    *,
    lever: str,
    target: str,
    group: int,
    tries: Iterable[tuple[Packing, Kernel]],
) -> Yes | No:
    """Refuse, with numbers: nothing to pack, or the share of the weights in the time cannot give enough."""
    every, ops = _int8.quantisable(diagnosis), linear(diagnosis, group)
    if not ops:
        return No(f"{lever} refused: {_nothing(every, group)}")
    if candidate.goal.objective in _int8.NOT_BY_TIME:
        return Yes()
    threads, best, said = candidate.execution.threads, 0.0, ""
    for pack, kernel in tries:
        gain = gain_over_float(diagnosis, machine, ops, target=target, threads=threads, pack=pack, kernel=kernel)
        if gain is None:
            return Yes()
        if gain.high > best:
            limit = crossover_batch(diagnosis, machine, ops, target=target, threads=threads, pack=pack, kernel=kernel)
            best, said = gain.high, f"{pack.bits}-bit weights: {pays(limit)}"
    if best < WORTH:
        return No(
            f"{lever} refused: weights of {len(ops)} kinds of products are too little of the time at batch "
            f"{diagnosis.ledger.batch}: at most {best:.2f}x over {target} in float ({said})"
        )
    return Yes()


# ---------------------------------------------------------------- inside


def _nothing(every: Sequence[Op], group: int) -> str:
    products = [op for op in every if op.kind == "matmul"]
    if products:
        widest = max(inner(op) or 0 for op in products)
        return f"no inner dimension of {len(products)} kinds of products (at most {widest}) holds a group of {group}"
    return f"no linear layer with weights in float among {len(every)} operators with weights"


def _arithmetic(machine: Machine, target: str, threads: int, kernel: Kernel) -> Rate | None:
    """The rate of packed products before ``share``: not below its middle, since streaming is counted apart, and no
    calibrated shapes, whose times hold the streaming of wider weights."""
    floats = rate_of(machine, target, "matmul", "fp32", threads)
    found = rate_of(machine, target, "matmul", "int8", threads) if kernel.share else floats
    return None if found is None else dataclasses.replace(found, slow=found.rate, warm=(), cold=())


def _one(op: Op, rate: Rate, unpack: float, part: float, spread: float, around: Surroundings, pack: Packing) -> float:
    fixed = op.calls * rate.call_s
    weights = _weights(op)
    busy = op_seconds(op, rate, dataclasses.replace(around, stream=None)) - fixed
    arithmetic = busy / part + unpack * weights / (rate.rate * part)
    streaming = weights * pack.weight_bytes / around.stream if around.stream else 0.0
    return max(arithmetic * spread, streaming) + fixed


def _packed(ledger: Ledger, ops: Sequence[Op], pack: Packing) -> Ledger:
    """The ledger with the weights of ``ops`` at their packed size: whether they fit a cache depends on it."""
    chosen = set(ops)
    return dataclasses.replace(
        ledger,
        ops=tuple(
            dataclasses.replace(op, weights_bytes=_weights(op) * pack.weight_bytes) if op in chosen else op
            for op in ledger.ops
        ),
    )


def _weights(op: Op) -> float:
    """Weights that an operator reads, as a number of elements."""
    return op.weights_bytes / (2.0 if op.dtype in ("bfloat16", "float16") else _FLOAT_BYTES)


def _at_batch(op: Op, times: float) -> Op:
    """The operator with ``times`` as many rows over the same weights."""
    grown = times * max(0.0, op.bytes_high - op.weights_bytes)
    return dataclasses.replace(
        op,
        flops=None if op.flops is None else op.flops * times,
        bytes_low=op.weights_bytes,
        bytes_high=op.weights_bytes + grown,
        time_s=None,
    )


def _last(wins: Callable[[int], bool]) -> int | None:
    """The largest batch that wins, by doubling and bisection: a gain that falls with the batch ends once."""
    if not wins(1):
        return 0
    high = 2
    while wins(high):
        if high >= _MOST_BATCH:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wins(middle) else (low, middle)
    return low
