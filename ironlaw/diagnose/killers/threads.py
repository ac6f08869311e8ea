"""Too many threads: more than there are cores, over all processes; or more than memory can feed."""

from __future__ import annotations

from ironlaw.diagnose.killers.facts import Facts
from ironlaw.diagnose.shares import roofs
from ironlaw.records import Finding, Term

_BOUND = 0.4
"""Least share of the time, at the low end, that memory must take for its knee to matter."""
_FLAT = 0.95
"""A thread count that reaches this share of the best bandwidth has reached the knee."""


def oversubscription(facts: Facts) -> Finding | None:
    """Replicas times the threads that work in each, against the cores; else the environment's own settings."""
    seen, replicas = facts.inspection, facts.execution.replicas
    busy = (seen.busy_threads if seen else None) or 0
    each = max(facts.execution.threads, busy)
    if replicas * each <= facts.cores:
        return _by_environment(facts)
    how = f"{busy} threads used the CPU" if busy > facts.execution.threads else f"{facts.execution.threads} threads"
    pools = ", ".join(f"{name} {count}" for name, count in seen.pools) if seen else ""
    return Finding(
        kind="oversubscription",
        attacks=Term.SYNC,
        share=None,
        evidence=(
            f"{replicas} process{'es' if replicas > 1 else ''} x {each} threads = {replicas * each} on {facts.cores} "
            f"cores ({how} in each{'; pools: ' + pools if pools else ''})"
        ),
        remedy=(
            f"levers threads and replicas: at most {max(1, facts.cores // replicas)} threads in each of {replicas}; "
            "torch.set_num_threads, cv2.setNumThreads, OMP_NUM_THREADS and threadpool_limits set each pool"
        ),
    )


def _by_environment(facts: Facts) -> Finding | None:
    """Thread variables of the user's shell that ask for more threads than there are cores."""
    cores = facts.machine.environment.identity.cores
    asked = [
        (name, int(str(value)))
        for name, value in facts.machine.environment.conditions.variables
        if name.endswith("_NUM_THREADS") and str(value).isdigit() and int(str(value)) > cores
    ]
    if not asked:
        return None
    return Finding(
        kind="oversubscription",
        attacks=Term.SYNC,
        share=None,
        evidence=f"the environment sets {', '.join(f'{n}={v}' for n, v in asked)} on {cores} cores",
        remedy=f"unset it, or set at most {cores}; lever threads measures which count is best",
    )


def bandwidth_knee(facts: Facts) -> Finding | None:
    """Threads beyond the count that saturates the memory which the run is bound by."""
    threads = facts.execution.threads
    if threads < 2 or facts.least_share(Term.MEMORY) < _BOUND:
        return None
    level = "cache" if roofs(facts.machine, facts.ledger, threads).resident else "dram"
    known = {
        count: found.value
        for count in range(1, threads + 1)
        if (found := facts.machine.ceiling(level, threads=count)) is not None and found.threads == count
    }
    if threads not in known:
        return None
    knee = min(count for count, value in known.items() if value >= _FLAT * max(known.values()))
    if knee == threads:
        return None
    lost = max(0.0, 1.0 - known[threads] / known[knee]) * facts.share(Term.MEMORY)
    return Finding(
        kind="bandwidth_knee",
        attacks=Term.MEMORY,
        share=lost or None,
        evidence=(
            f"memory is {facts.share(Term.MEMORY):.0%} of the time, and {level} gives {known[knee] / 1e9:.3g} GB/s to "
            f"{knee} thread{'s' if knee > 1 else ''} but {known[threads] / 1e9:.3g} GB/s to {threads}"
        ),
        remedy=f"lever threads: {knee} are enough; lever replicas uses the other cores for other calls",
    )
