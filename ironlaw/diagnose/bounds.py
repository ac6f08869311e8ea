"""The most that each class of change can give on this workload: what works, and what would be wasted.

Every bound is Amdahl's law over the seconds that the class touches, sped up by what this machine measured (int8 and
graphs in the runtime that is fastest at such products, all cores against the threads used) or removed altogether; a
class whose ceilings were not measured is left out. A bound is not a prediction: it charges no cost for the change.
Below 1.05x a class is wasted, and the reason names what the time is spent on instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ironlaw.diagnose.shares import EAGER, Share, Split, limit
from ironlaw.records import Bound, Machine, Term, TermTime, precision

WORTH = 1.05
MOST = 100.0
"""Bounds stop here: beyond it they say only that nothing else was seen."""
_WEIGHTED = frozenset({"conv", "depthwise", "matmul", "recurrent"})
_FUSED_AWAY = frozenset({"elementwise", "norm", "copy", "view", "softmax"})
_LAID_OUT = frozenset({"conv", "depthwise", "pool", "norm"})
_WORDS = {
    Term.MEMORY: "moving data",
    Term.COMPUTE: "arithmetic",
    Term.LATENCY: "dispatch",
    Term.PAGING: "page faults",
    Term.RESIDUAL: "outside what was counted",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Everything that a bound depends on."""

    split: Split
    terms: tuple[TermTime, ...]
    machine: Machine
    total_s: float
    threads: int
    precision: str
    target: str

    def seconds(self, term: Term) -> float:
        return next((one.seconds.value for one in self.terms if one.term == term), 0.0)

    def work(self, kinds: frozenset[str] | None = None) -> float:
        return sum(s.work_s for s in self.split.shares if kinds is None or s.op.kind in kinds)

    def ceiling(self, name: str, dtype: str | None, threads: int) -> float | None:
        found, _ = limit(self.machine, name, dtype=dtype, threads=threads)
        return found.value if found and found.value > 0.0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Touch:
    """Seconds that a class of change touches, and what stays of them. ``absent`` says why there is nothing."""

    seconds: float
    left_s: float = 0.0
    how: str = ""
    absent: str = ""


def bounds(case: Case) -> tuple[Bound, ...]:
    """One bound for each class whose ceilings are known, the largest first."""
    if case.total_s <= 0.0:
        return ()
    touched = [(name, attacks, touch(case)) for name, attacks, touch in _CLASSES]
    found = [_bound(case, name, attacks, touch) for name, attacks, touch in touched if touch is not None]
    return tuple(sorted(found, key=lambda one: -one.speedup))


def _bound(case: Case, name: str, attacks: Term, touch: _Touch) -> Bound:
    left = case.total_s - touch.seconds + touch.left_s
    speedup = min(MOST, case.total_s / max(left, 1e-12))
    share = touch.seconds / case.total_s
    wasted = speedup < WORTH
    amount = f"at most {speedup:.2f}x" if speedup < MOST else f"over {MOST:.0f}x"
    if not wasted:
        reason = f"{name}: {amount}, since it touches {share:.0%} of the time ({touch.how})"
    else:
        reason = f"{name}: {amount} here, because {_why_wasted(case, touch, attacks, share)}"
    return Bound(change=name, attacks=attacks, speedup=speedup, wasted=wasted, reason=reason)


def _why_wasted(case: Case, touch: _Touch, attacks: Term, share: float) -> str:
    if touch.absent:
        return touch.absent
    if share > 0.5:
        return touch.how
    others = [one for one in case.terms if one.term != attacks]
    top = max(others, key=lambda one: one.seconds.value, default=None)
    if top is None or top.seconds.value < 0.2 * case.total_s:
        return f"it touches {share:.0%} of the time"
    return f"{top.seconds.value / case.total_s:.0%} of the time is {_WORDS[top.term]}"


# ---------------------------------------------------------------- classes


def _narrower(dtype: str, item_bytes: float) -> Callable[[Case], _Touch | None]:
    """Lower precision: products as fast as this runtime's ceilings or another's kernels allow, whichever is faster."""

    def touch(case: Case) -> _Touch | None:
        now, then = (case.ceiling("matmul", one, case.threads) for one in (case.precision, dtype))
        narrow = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0}.get(case.precision, 4.0) / item_bytes
        shares = [s for s in case.split.shares if s.op.kind in _WEIGHTED]
        if dtype == case.precision or now is None or then is None:
            return None
        own = then / now
        ways: list[tuple[float, str]] = []
        for s in shares:
            here = s.work_s / (own if own < 1.0 else _mix(s, memory=narrow, compute=own))
            there = _at_best(case, s, dtype)
            ways.append(min((here, ""), there) if there else (here, ""))
        left = sum(seconds for seconds, _ in ways)
        where = " or ".join(sorted({target for _, target in ways if target not in ("", case.target)}))
        how = f"{dtype} products reach {_sum(shares) / left if left else own:.2g}x here"
        if where:
            how += f" in {where}; what it saves besides is counted with graph runtimes"
        return _Touch(seconds=_sum(shares), left_s=left, how=how)

    return touch


def _at_best(case: Case, share: Share, dtype: str) -> tuple[float, str] | None:
    """Seconds of a product in the runtime that is fastest at its kind, by the fast end of its rates, and which.

    None where no other way of making it was calibrated.
    """
    now = (case.target, case.precision)
    found = [
        (share.op.flops / one.rate.high, one.target)
        for one in case.machine.kernels
        if (one.kind, precision(one.dtype), one.threads) == (share.op.kind, dtype, case.threads)
        and one.valid and (one.target, dtype) != now and one.rate.high > 0.0 and share.op.flops
    ]  # fmt: skip
    return min(found, default=None)


def _more_threads(case: Case) -> _Touch:
    cores = case.machine.environment.identity.cores
    if case.threads >= cores:
        return _Touch(seconds=0.0, absent=f"all {cores} cores are in use")
    ratios = []
    for name, dtype in (("dram", None), ("matmul", case.precision)):
        now, then = case.ceiling(name, dtype, case.threads), case.ceiling(name, dtype, cores)
        ratios.append(then / now if now and then and then > now else cores / case.threads)
    left = sum(s.work_s / _mix(s, memory=ratios[0], compute=ratios[1]) for s in case.split.shares)
    how = f"{cores} threads for {case.threads}: {ratios[1]:.2g}x arithmetic, {ratios[0]:.2g}x bandwidth"
    return _Touch(seconds=case.work(), left_s=left, how=how)


def _graph(case: Case) -> _Touch:
    """Fusing, compiling, graph runtimes: no dispatch, no temporaries, memory planned once, their own kernels."""
    seconds = case.seconds(Term.LATENCY)
    if case.target != EAGER:
        return _Touch(seconds=seconds, how="it already runs as a graph; only fixed costs are left")
    seconds += case.work(_FUSED_AWAY) + case.seconds(Term.PAGING)
    left, how = 0.0, "dispatch, temporaries of elementwise operators, allocation"
    for share in (s for s in case.split.shares if s.op.kind in _WEIGHTED):
        there = _at_best(case, share, case.precision)
        if there and there[0] < share.work_s:
            seconds, left, how = seconds + share.work_s, left + there[0], f"{how}, kernels" if left == 0.0 else how
    return _Touch(seconds=seconds, left_s=left, how=how)


def _allocator(case: Case) -> _Touch:
    return _Touch(seconds=case.seconds(Term.PAGING), how="page faults")


def _channels_last(case: Case) -> _Touch:
    if case.target != EAGER:
        return _Touch(seconds=0.0, absent="a graph runtime chooses its own layout")
    shares = [s for s in case.split.shares if s.op.kind in _LAID_OUT]
    if not any(s.op.kind in ("conv", "depthwise") for s in shares):
        return _Touch(seconds=0.0, absent="there is no convolution")
    return _Touch(seconds=_sum(shares), left_s=sum(s.roof_s for s in shares), how="convolutions up to their roof")


def _batching(case: Case) -> _Touch:
    """Throughput: fixed costs and reading weights are paid once for many examples."""
    weights = sum(
        s.work_s * (s.memory or 0.0) * min(1.0, s.op.weights_bytes / s.op.bytes_high)
        for s in case.split.shares
        if s.op.bytes_high > 0.0
    )
    how = "throughput only: dispatch and reading weights shared by a batch"
    return _Touch(seconds=case.seconds(Term.LATENCY) + weights, how=how)


def _pruning(case: Case) -> _Touch:
    """Half of all channels gone: a quarter of the products, half of everything else."""
    shares = case.split.shares
    quarter = sum(s.work_s for s in shares if s.op.kind in ("conv", "matmul", "recurrent", "attention"))
    rest = case.work() - quarter
    return _Touch(seconds=case.work(), left_s=quarter / 4.0 + rest / 2.0, how="half of all channels gone")


def _winograd(case: Case) -> _Touch:
    """F(2x2, 3x3) needs 2.25 times fewer products (Lavin and Gray 2016), on dense 3x3 convolutions."""
    shares = [s for s in case.split.shares if s.op.kind == "conv" and _is_3x3(s.op.shape)]
    if not shares:
        return _Touch(seconds=0.0, absent="there is no dense 3x3 convolution")
    left = sum(s.work_s / _mix(s, memory=1.0, compute=2.25) for s in shares)
    return _Touch(seconds=_sum(shares), left_s=left, how="dense 3x3 convolutions")


def _term_gone(term: Term, how: str) -> Callable[[Case], _Touch]:
    return lambda case: _Touch(seconds=case.seconds(term), how=how)


_CLASSES: Sequence[tuple[str, Term, Callable[[Case], _Touch | None]]] = (
    ("int8", Term.COMPUTE, _narrower("int8", 1.0)),
    ("bf16", Term.COMPUTE, _narrower("bf16", 2.0)),
    ("fp16", Term.COMPUTE, _narrower("fp16", 2.0)),
    ("more threads", Term.COMPUTE, _more_threads),
    ("graph runtime or compiler", Term.LATENCY, _graph),
    ("allocator settings", Term.PAGING, _allocator),
    ("channels-last", Term.COMPUTE, _channels_last),
    ("batching", Term.LATENCY, _batching),
    ("structured pruning", Term.COMPUTE, _pruning),
    ("Winograd", Term.COMPUTE, _winograd),
    ("unlimited FLOP/s", Term.COMPUTE, _term_gone(Term.COMPUTE, "all arithmetic free")),
    ("unlimited bandwidth", Term.MEMORY, _term_gone(Term.MEMORY, "all traffic free")),
)


def _sum(shares: Sequence[Share]) -> float:
    return sum(share.work_s for share in shares)


def _mix(share: Share, *, memory: float, compute: float) -> float:
    """How much faster a share gets when its memory part and its arithmetic part do; harmonic over time."""
    part = 0.5 if share.memory is None else share.memory
    return 1.0 / (part / memory + (1.0 - part) / compute)


def _is_3x3(shape: str) -> bool:
    operands = shape.replace(";", ",").split(",")
    return len(operands) > 1 and operands[1].strip().endswith("x3x3")
