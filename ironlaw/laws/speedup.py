"""Speed-up laws: what a change to part of the work can give, and what more workers can give.

Why these: Amdahl bounds every lever by the share it touches; Gustafson answers the other question
(more work in the same time); Karp-Flatt turns a measured speed-up back into a serial share; work and
span bound any schedule. They refuse shares outside [0, 1]; none of them models contention, for which
see ``usl``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ironlaw.laws.checks import fraction, nonnegative, positive
from ironlaw.laws.law import Law, above_zero, at_least, share

AMDAHL = "Amdahl, Validity of the Single Processor Approach, AFIPS 1967"
HILL = "Hill and Marty, Amdahl's Law in the Multicore Era, IEEE Computer 41(7), 2008, first equation"
GUSTAFSON = "Gustafson, Reevaluating Amdahl's Law, CACM 31(5), 1988"
KARP_FLATT = "Karp and Flatt, Measuring Parallel Processor Performance, CACM 33(5), 1990 (serial fraction f)"
BRENT = "Brent, The Parallel Evaluation of General Arithmetic Expressions, JACM 21(2), 1974"


def amdahl(*, p: float, s: float) -> float:
    """Whole speed-up when a share ``p`` of the time gets ``s`` times faster: ``1 / ((1 - p) + p / s)``.

    ``s`` below 1 is a slow-down. Holds for a fixed amount of work whose parts do not overlap.
    """
    fraction(p=p)
    positive(s=s)
    return 1.0 / ((1.0 - p) + p / s)


def amdahl_limit(*, p: float) -> float:
    """The speed-up that no change to a share ``p`` of the time can pass: ``1 / (1 - p)``, for ``p`` below 1."""
    fraction(p=p)
    if p == 1:
        raise ValueError("p must be below 1, got 1: a change to all of the time has no limit")
    return 1.0 / (1.0 - p)


def amdahl_parts(*, shares: Sequence[float], speedups: Sequence[float]) -> float:
    """Whole speed-up when disjoint shares of the time each get their own speed-up; the rest stays."""
    if len(shares) != len(speedups):
        raise ValueError(f"shares and speedups must pair up, got {len(shares)} and {len(speedups)}")
    for part, gain in zip(shares, speedups, strict=True):
        fraction(shares=part)
        positive(speedups=gain)
    total = sum(shares)
    if total > 1 + 1e-9:
        raise ValueError(f"shares must sum to at most 1, got {total:g}")
    left = max(0.0, 1.0 - total) + sum(a / g for a, g in zip(shares, speedups, strict=True))
    return 1.0 / left


def needed_share(*, target: float, s: float) -> float:
    """The share that must be touched by a change of ``s`` to reach ``target`` overall (Amdahl inverted).

    Raises ``ValueError`` when no share is enough (``target`` above ``s``).
    """
    positive(target=target, s=s)
    if not 1 <= target <= s or s == 1:
        raise ValueError(f"target must lie between 1 and s (above 1), got target {target:g} and s {s:g}")
    return (1.0 - 1.0 / target) / (1.0 - 1.0 / s)


def gustafson(*, p: float, n: float) -> float:
    """Scaled speed-up ``(1 - p) + p * n``: work grows with ``n`` workers, time stays.

    ``p`` is the parallel share of the time *on the parallel machine*. Holds while the serial part
    does not grow with the problem.
    """
    fraction(p=p)
    _workers(n)
    return (1.0 - p) + p * n


def karp_flatt(*, speedup: float, n: float) -> float:
    """The experimentally determined serial fraction ``(1/speedup - 1/n) / (1 - 1/n)``, for ``n`` above 1.

    Rising with ``n``: overhead grows. Flat: the work is serial. Negative: super-linear, look at caches.
    """
    positive(speedup=speedup)
    _workers(n)
    if n == 1:
        raise ValueError("n must be above 1, got 1: one worker shows no serial fraction")
    return (1.0 / speedup - 1.0 / n) / (1.0 - 1.0 / n)


def efficiency(*, speedup: float, n: float) -> float:
    """Speed-up per worker, ``speedup / n``. Above 1 is super-linear: caches, or a poor baseline."""
    positive(speedup=speedup)
    _workers(n)
    return speedup / n


def brent_upper_s(*, work_s: float, span_s: float, n: float) -> float:
    """No greedy schedule on ``n`` workers takes longer than ``(work - span) / n + span``."""
    _work_span(work_s, span_s, n)
    return (work_s - span_s) / n + span_s


def work_span_lower_s(*, work_s: float, span_s: float, n: float) -> float:
    """No schedule on ``n`` workers is faster than ``max(work / n, span)``."""
    _work_span(work_s, span_s, n)
    return max(work_s / n, span_s)


def parallelism(*, work_s: float, span_s: float) -> float:
    """Average parallelism ``work / span``: more workers than this cannot help."""
    positive(span_s=span_s)
    _work_span(work_s, span_s, 1)
    return work_s / span_s


def _workers(n: float) -> None:
    positive(n=n)
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n:g}")


def _work_span(work_s: float, span_s: float, n: float) -> None:
    nonnegative(work_s=work_s, span_s=span_s)
    _workers(n)
    if span_s > work_s:
        raise ValueError(f"span_s must not exceed work_s, got {span_s:g} and {work_s:g}")


_N = at_least(1, "n", "1", "workers")
_SPEEDUP = above_zero("speedup", "1", "measured speed-up over one worker")
_WORK = at_least(0, "work_s", "s", "total work: the time on one worker")
_SPAN = at_least(0, "span_s", "s", "critical path: the time on unlimited workers; at most the work")
_FIXED = "the amount of work is fixed, the parts do not overlap, and touching one does not change the others"
_GREEDY = "the work is a directed acyclic graph of tasks; scheduling and communication are free"


def _law(name: str, title: str, **rest: object) -> Law:
    return Law(name=name, family="speed-up", title=title, **rest)  # type: ignore[arg-type]


LAWS = (
    _law(
        "amdahl",
        "Speed-up of the whole when a part gets faster",
        equation="1 / ((1 - p) + p / s)",
        inputs=(
            share("p", "share of the time that gets faster"),
            above_zero("s", "1", "how many times faster that share gets"),
        ),
        unit="1",
        valid_while=_FIXED,
        source=f"{AMDAHL}; {HILL}",
        function=amdahl,
        example=(("p", 0.95), ("s", 100)),
    ),
    _law(
        "amdahl-limit",
        "The most that any change to a share can give",
        equation="1 / (1 - p)",
        inputs=(share("p", "share of the time that the change touches", below=True),),
        unit="1",
        valid_while=_FIXED,
        source=AMDAHL,
        function=amdahl_limit,
        example=(("p", 0.95),),
    ),
    _law(
        "amdahl-parts",
        "Speed-up of the whole when several parts get faster",
        equation="1 / (1 - sum(p_i) + sum(p_i / s_i))",
        inputs=(
            share("shares", "disjoint shares of the time; they sum to at most 1", many=True),
            above_zero("speedups", "1", "how many times faster each share gets", many=True),
        ),
        unit="1",
        valid_while=_FIXED,
        source=AMDAHL,
        function=amdahl_parts,
        example=(("shares", [0.5, 0.3]), ("speedups", [4, 2])),
    ),
    _law(
        "amdahl-needed-share",
        "The share that must be touched to reach a speed-up",
        equation="(1 - 1/target) / (1 - 1/s)",
        inputs=(
            at_least(1, "target", "1", "speed-up of the whole that is wanted; at most s"),
            at_least(1, "s", "1", "how many times faster the share gets", above=True),
        ),
        unit="1",
        valid_while=_FIXED,
        source=AMDAHL,
        function=needed_share,
        example=(("target", 2), ("s", 4)),
    ),
    _law(
        "gustafson",
        "Scaled speed-up: more work in the same time",
        equation="(1 - p) + p * n",
        inputs=(share("p", "parallel share of the time on the parallel machine"), _N),
        unit="1",
        valid_while="the parallel work grows with the workers and the serial part does not",
        source=f"{GUSTAFSON}, scaled speedup = N + (1 - N) s'",
        function=gustafson,
        example=(("p", 0.99), ("n", 1024)),
    ),
    _law(
        "karp-flatt",
        "Serial fraction seen in a measured speed-up",
        equation="(1/speedup - 1/n) / (1 - 1/n)",
        inputs=(_SPEEDUP, at_least(1, "n", "1", "workers", above=True)),
        unit="1",
        valid_while="the speed-up is of a fixed amount of work; a rise with n is overhead, not serial work",
        source=KARP_FLATT,
        function=karp_flatt,
        example=(("speedup", 4.71), ("n", 8)),
    ),
    _law(
        "efficiency",
        "Speed-up per worker",
        equation="speedup / n",
        inputs=(_SPEEDUP, _N),
        unit="1",
        valid_while="the baseline is the best program for one worker",
        source="Grama et al., Introduction to Parallel Computing, 2003, section 5.2.4",
        function=efficiency,
        example=(("speedup", 6), ("n", 8)),
    ),
    _law(
        "brent",
        "The longest that a greedy schedule can take",
        equation="(work - span) / n + span",
        inputs=(_WORK, _SPAN, _N),
        unit="s",
        valid_while=_GREEDY,
        source=f"{BRENT}, lemma 2; Graham, BSTJ 45(9), 1966",
        function=brent_upper_s,
        example=(("work_s", 100), ("span_s", 4), ("n", 8)),
    ),
    _law(
        "work-span",
        "The least that any schedule can take",
        equation="max(work / n, span)",
        inputs=(_WORK, _SPAN, _N),
        unit="s",
        valid_while=_GREEDY,
        source="Blumofe and Leiserson, Scheduling Multithreaded Computations by Work Stealing, JACM 46(5), 1999",
        function=work_span_lower_s,
        example=(("work_s", 100), ("span_s", 4), ("n", 8)),
    ),
    _law(
        "parallelism",
        "Average parallelism: workers beyond it are idle",
        equation="work / span",
        inputs=(_WORK, above_zero("span_s", "s", "critical path; at most the work")),
        unit="1",
        valid_while=_GREEDY,
        source="Blumofe and Leiserson, JACM 46(5), 1999",
        function=parallelism,
        example=(("work_s", 100), ("span_s", 4)),
    ),
)
