"""Puts the times of a profile on the operators of a ledger.

Two passes saw the same run: counting gives work, profiling gives time. They meet by name and input shapes, else by
kind and shapes, else by kind alone, where time is shared in proportion to work. A runtime that fuses
reports operators that were never counted; when it counts them itself, its list is what really ran and
replaces the ledger's. What nobody counted is kept with ``flops`` None, so that no time disappears.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ironlaw.records import Ledger, Op

OBSERVER, CALL = "ironlaw::observer", "ironlaw::call"
"""Pseudo-operators of a profile: what observing cost, and the whole call (see ``measure.profile_torch``)."""

_ARITHMETIC = frozenset({"conv", "depthwise", "matmul", "attention", "recurrent"})
_NO_ARITHMETIC = frozenset({"view", "copy", "embedding"})


def merge(ledger: Ledger, profiled: Sequence[Op]) -> Ledger:
    """The ledger with ``time_s`` on its operators; unchanged when nothing was profiled.

    The sum of times is that of the profile; ``observer_s`` and ``profiled_s`` are set where the profile says.
    """
    marks = {op.name: op.time_s for op in profiled if op.name in (OBSERVER, CALL)}
    timed = [op for op in profiled if op.name not in marks and op.time_s is not None]
    if not timed:
        return ledger
    ops = _as_run(ledger, timed) if _self_counted(timed) else _on_counted(ledger.ops, timed)
    observer_s, profiled_s = marks.get(OBSERVER, ledger.observer_s), marks.get(CALL, ledger.profiled_s)
    return dataclasses.replace(ledger, ops=ops, observer_s=observer_s, profiled_s=profiled_s)


def _self_counted(timed: Sequence[Op]) -> bool:
    work = [op for op in timed if op.kind != "view"]
    counted = [op for op in work if op.flops is not None and op.bytes_high > 0.0]
    return bool(work) and sum(op.time_s or 0.0 for op in counted) > 0.9 * sum(op.time_s or 0.0 for op in work)


def _as_run(ledger: Ledger, timed: Sequence[Op]) -> tuple[Op, ...]:
    """The runtime's own list. By kind, traffic that caches cannot avoid is the ledger's share of it.

    Arithmetic that the runtime counts at less than half of the ledger (fused blocks, recurrent layers) is the
    ledger's, shared out by time.
    """
    counted, ran = _totals(ledger.ops), _totals(timed)
    return tuple(_as_counted(op, counted[op.kind], ran[op.kind]) if op.kind in counted else op for op in timed)


@dataclass(slots=True)
class _Total:
    flops: float = 0.0
    low: float = 0.0
    high: float = 0.0
    time_s: float = 0.0


def _totals(ops: Sequence[Op]) -> dict[str, _Total]:
    totals: dict[str, _Total] = {}
    for op in ops:
        total = totals.setdefault(op.kind, _Total())
        total.flops += op.flops or 0.0
        total.low += op.bytes_low
        total.high += op.bytes_high
        total.time_s += op.time_s or 0.0
    return totals


def _as_counted(op: Op, counted: _Total, ran: _Total) -> Op:
    avoidable = counted.low / counted.high if counted.high > 0.0 else 0.0
    low = min(op.bytes_high, max(op.bytes_low, op.bytes_high * avoidable))
    flops = op.flops
    if op.kind in _ARITHMETIC and ran.flops < 0.5 * counted.flops and ran.time_s > 0.0:
        flops = counted.flops * (op.time_s or 0.0) / ran.time_s
    return dataclasses.replace(op, bytes_low=low, flops=flops)


def _on_counted(counted: Sequence[Op], timed: Sequence[Op]) -> tuple[Op, ...]:
    seconds = dict.fromkeys(range(len(counted)), 0.0)
    reached: set[int] = set()
    left = list(timed)
    ways: tuple[Callable[[Op], Hashable], ...] = (
        lambda op: (op.name.lower().strip("_"), op.shape),
        lambda op: (op.kind, op.shape),
        lambda op: op.kind,
    )
    for way in ways:
        places: dict[Hashable, list[int]] = defaultdict(list)
        for position, op in enumerate(counted):
            if position not in reached:
                places[way(op)].append(position)
        unplaced = []
        for op in left:
            found = places.get(way(op))
            if not found:
                unplaced.append(op)
                continue
            for position, part in _parts(counted, found):
                seconds[position] += (op.time_s or 0.0) * part
        reached |= {position for position, value in seconds.items() if value > 0.0}
        left = unplaced
    ops = [
        dataclasses.replace(op, time_s=seconds[position]) if position in reached else op
        for position, op in enumerate(counted)
    ]
    return (*ops, *(_leftover(op) for op in left))


def _parts(counted: Sequence[Op], positions: list[int]) -> list[tuple[int, float]]:
    """How one time is shared over several counted operators: by FLOPs, else bytes, else calls."""
    measures: tuple[Callable[[Op], float], ...] = (
        lambda op: op.flops or 0.0,
        lambda op: op.bytes_high,
        lambda op: float(op.calls),
    )
    for measure in measures:
        total = sum(measure(counted[i]) for i in positions)
        if total > 0.0:
            return [(i, measure(counted[i]) / total) for i in positions]
    return [(i, 1.0 / len(positions)) for i in positions]


def _leftover(op: Op) -> Op:
    return dataclasses.replace(op, flops=op.flops if op.flops is not None or op.kind not in _NO_ARITHMETIC else 0.0)
