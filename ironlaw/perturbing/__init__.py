"""Causes by perturbation: one thing is changed, and what the time does says what a term takes.

A diagnosis reasons from counts, profiles and ceilings; a perturbation asks the workload itself. Each one speaks of one
term in seconds of a call, with an interval, and says what it cannot tell. Launches are facts of the bench: what was
measured once is not measured again. Nothing here decides what dominates: that is :mod:`ironlaw.diagnose.confirming`.

case        what every perturbation works on; variants of the workload and their launches
fits        pure: fixed cost, serial share, memory share from times by launch
batch       more examples a call: the fixed cost, and the work that grows
tiny        the smallest input at equal dispatches: the floor of a call
threads     threads up to all cores: the serial part and the knee
corunner    another process streams memory beside it: the share that bandwidth limits
cached      the same examples in parts that fit the cache: what overflowing it costs
work        seconds of work that a ledger asks for
streamer    the process that streams
references  pure streams and pure arithmetic, against which the co-runner is calibrated
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ironlaw.bench import Bench, Subject
from ironlaw.diagnose.confirming import confirmed, rivals
from ironlaw.perturbing import batch, cached, corunner, threads, tiny
from ironlaw.perturbing.case import Case
from ironlaw.records import Diagnosis, Machine, Perturbation, Term, UserError

RUNS: Mapping[str, Callable[[Case], tuple[Perturbation, ...]]] = {
    "batch": batch.run,
    "tiny": tiny.run,
    "threads": threads.run,
    "co-runner": corunner.run,
    "cached": cached.run,
}
NAMES = tuple(RUNS)
SPEAKS_OF: Mapping[Term, tuple[str, ...]] = {
    Term.LATENCY: ("batch", "tiny", "threads"),
    Term.COMPUTE: ("batch",),
    Term.MEMORY: ("co-runner", "cached"),
}
"""Which perturbations can tell something about a term."""
SHORT_S = 1e-3
"""A call below this is checked for a fixed cost."""


def perturb(
    bench: Bench,
    subject: Subject,
    diagnosis: Diagnosis,
    machine: Machine,
    which: Iterable[str],
    talk: Callable[[str], None],
) -> tuple[Perturbation, ...]:
    """What each perturbation of ``which`` (:data:`NAMES`) says of a subject that was measured and diagnosed.

    One that cannot be done here has no ``seconds`` and its reason as evidence.

    Raises:
        UserError: a name is not known, or the baseline stops working.
    """
    wanted = checked(which)
    case = Case(bench=bench, subject=subject, diagnosis=diagnosis, machine=machine, talk=talk)
    found: list[Perturbation] = []
    for name in wanted:
        talk(f"perturb: {name}")
        found += RUNS[name](case)
    return tuple(found)


def checked(which: Iterable[str]) -> tuple[str, ...]:
    """The names in the order in which they run; raises UserError for one that is not known."""
    asked = set(which)
    if unknown := asked - set(NAMES):
        raise UserError(f"perturbation {', '.join(sorted(unknown))}", "is not known", f"Use: {', '.join(NAMES)}.")
    return tuple(name for name in NAMES if name in asked)


def perturbed(
    bench: Bench,
    subject: Subject,
    diagnosis: Diagnosis,
    machine: Machine,
    which: Iterable[str] | None,
    talk: Callable[[str], None],
) -> Diagnosis:
    """The diagnosis after its perturbations; ``which`` None runs those of :func:`by_default`."""
    names = by_default(diagnosis) if which is None else checked(which)
    return confirmed(diagnosis, perturb(bench, subject, diagnosis, machine, names, talk)) if names else diagnosis


def by_default(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What can tell two close terms apart; for a short call that seems to be work, whether it grows with the batch.

    Kernels of a few microseconds cost more before their first element than a tiny call shows, and that looks like work.
    """
    close = rivals(diagnosis)
    if close is not None:
        return relevant(close)
    short = diagnosis.total_s < SHORT_S and diagnosis.dominant in (Term.COMPUTE, Term.MEMORY)
    return ("batch",) if short else ()


def chosen(asked: bool | Iterable[str] | None) -> tuple[str, ...] | None:
    """Names from what a user says: all, none, some, or None for the default. Raises UserError for an unknown name."""
    if asked is None:
        return None
    return checked((NAMES if asked else ()) if isinstance(asked, bool) else asked)


def relevant(terms: Iterable[Term]) -> tuple[str, ...]:
    """The perturbations that can tell something about any of these terms."""
    return checked(name for term in terms for name in SPEAKS_OF.get(term, ()))
