"""Thread sweep: the part that threads do not share, and the count past which more of them give nothing.

The serial part holds the latency (dispatch runs on one thread), operators too small to be split, and what waits for a
bandwidth that is already used up. So it bounds the latency from above and refutes a larger one; it cannot tell its own
parts from each other. It needs two cores.
"""

from __future__ import annotations

from ironlaw.perturbing.case import Case, milliseconds, settled, silent
from ironlaw.perturbing.fits import Serial, serial
from ironlaw.records import Perturbation, Term

NAME = "threads"
ALL_UP_TO = 4
"""Every count up to this many cores; beyond, powers of two and all cores."""


def run(case: Case) -> tuple[Perturbation, ...]:
    """The serial part of a call, against the latency term."""
    candidate = case.subject.candidate
    assert candidate is not None
    now = candidate.execution.threads
    cores = min(case.machine.environment.identity.cores, candidate.goal.cores or 1 << 30)
    if cores < 2:
        return silent(NAME, Term.SERIAL, "not done: one core may be used here")
    if candidate.execution.replicas > 1:
        return silent(NAME, Term.SERIAL, f"not done: {candidate.execution.replicas} replicas share the cores")
    variants = {n: case.changed("threads", threads=n) for n in counts(cores) if n != now}
    case.measure(list(variants.values()))
    works = {n: case.seconds(one) for n, one in variants.items() if one.failure is None}
    launches = min((len(seconds) for seconds in works.values()), default=0)
    if launches < 2 or (1 not in works and now != 1):
        reason = next((one.failure.reason for one in variants.values() if one.failure), "too few launches")
        return silent(NAME, Term.SERIAL, f"not done: other thread counts do not run ({reason})")
    times = {n: seconds[:launches] for n, seconds in works.items()}
    times[now] = [case.diagnosis.total_s] * launches
    found = serial(times)
    quiet = settled([launch for one in variants.values() for launch in one.launches])
    return (case.answer(NAME, Term.SERIAL, found.seconds, _evidence(found, times), quiet=quiet),)


def counts(cores: int) -> tuple[int, ...]:
    """Thread counts to try on so many cores."""
    if cores <= ALL_UP_TO:
        return tuple(range(1, cores + 1))
    powers = [1 << n for n in range(cores.bit_length()) if 1 << n < cores]
    return (*powers, cores)


def _evidence(found: Serial, times: dict[int, list[float]]) -> str:
    law = "Karp and Flatt" if found.coherency is None else f"USL with coherency {found.coherency:.2g}"
    each = ", ".join(f"{n}: {sum(times[n]) / len(times[n]) * 1e3:.3g} ms" for n in sorted(times))
    share = f"{found.share.value:.0%} [{found.share.low:.0%}, {found.share.high:.0%}]"
    return (
        f"threads do not share {milliseconds(found.seconds)}, {share} of a call on one thread ({law}; {each}); "
        f"the knee is at {found.knee} of {max(times)}"
    )
