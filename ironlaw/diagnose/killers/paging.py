"""Page-fault storms: an allocator that gives memory back to the kernel after every call and asks for it anew."""

from __future__ import annotations

from ironlaw.diagnose.killers.facts import NOTABLE, Facts, milliseconds
from ironlaw.diagnose.shares import limit
from ironlaw.records import Finding, Term

_FEWEST = 100.0
"""Faults a call: below it there is no storm, whatever their cost."""
_CURE = "MALLOC_MMAP_THRESHOLD_"


def page_faults(facts: Facts) -> Finding | None:
    """Faults that take a share of every call, by the paging term; by the kernel's time where faults have no price."""
    faults = facts.measurement.faults_per_call
    share = facts.share(Term.PAGING) if _priced(facts) else _system_share(facts)
    if faults < _FEWEST or share < NOTABLE:
        return None
    system = milliseconds(facts.measurement.system_s_per_call)
    return Finding(
        kind="page_faults",
        attacks=Term.PAGING,
        share=share,
        evidence=(
            f"{faults:,.0f} page faults a call; the kernel takes {system} of CPU time "
            f"in a call of {milliseconds(facts.total_s)}"
        ),
        remedy=_remedy(facts),
    )


def _priced(facts: Facts) -> bool:
    return limit(facts.machine, "fault", cost=True)[0] is not None


def _system_share(facts: Facts) -> float:
    """The kernel's CPU time as a share of all CPU time of a call."""
    measured = facts.measurement
    return measured.system_s_per_call / measured.cpu_s_per_call if measured.cpu_s_per_call > 0.0 else 0.0


def _remedy(facts: Facts) -> str:
    if _CURE in dict(facts.execution.variables):
        return "memory is kept already (lever allocator): reuse buffers (in place, out=), or a graph runtime's arena"
    return (
        "lever allocator: start the process with MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ "
        "set high, so that freed memory stays; or lever runtime, which plans memory once"
    )
