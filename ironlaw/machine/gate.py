"""From samples to a ceiling, and the gate that a ceiling must pass to be believed.

A ceiling is the median of its samples with their 10 % and 90 % quantiles. When these lie far apart,
or when others took much of the processors that the probe ran on, the number says more about the
moment than about the machine: it is measured again, and if that does not help it is kept with
``valid=False`` and a note. Nothing is ever put in its place.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ironlaw.measure.foreign import ForeignClock
from ironlaw.records import Cache, Ceiling, KernelRate

MAX_SPREAD = 0.35
"""(high - low) / value above which a ceiling is refused."""
MAX_FOREIGN = 0.10
"""Share of the probe's processors that others may take."""

COUNTED = "faults"
REFUSED_SWEEP = "caches by sweep"

Found = tuple[Ceiling | Cache | str, ...]
"""What a probe returns: ceilings, caches, and notes in words on what it could not measure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What one process answers. ``notes`` say in words what could not be measured."""

    ceilings: tuple[Ceiling, ...] = ()
    caches: tuple[Cache, ...] = ()
    kernels: tuple[KernelRate, ...] = ()
    notes: tuple[str, ...] = ()


def quantile(samples: Iterable[float], level: float) -> float:
    """The quantile by linear interpolation (Hyndman and Fan's type 7, as NumPy's default)."""
    ordered = sorted(samples)
    position = level * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def ceiling(
    name: str, unit: str, samples: Sequence[float], *, dtype: str | None = None, threads: int = 1, note: str = ""
) -> Ceiling:
    """The ceiling that these samples show. Fewer than three cannot show a spread and are refused."""
    return Ceiling(
        name=name,
        unit=unit,
        value=quantile(samples, 0.5),
        low=quantile(samples, 0.1),
        high=quantile(samples, 0.9),
        dtype=dtype,
        threads=threads,
        valid=len(samples) >= 3,
        note=note if len(samples) >= 3 else _join(note, f"only {len(samples)} samples fitted in the time"),
    )


def spread(found: Ceiling) -> float:
    return (found.high - found.low) / found.value if found.value else 0.0


def judge(
    found: Ceiling, foreign: float, *, max_spread: float = MAX_SPREAD, max_foreign: float = MAX_FOREIGN
) -> Ceiling:
    """The ceiling, refused with a note where its spread or the CPU time of others is too large.

    Faults are counted, not timed: others do not change them.
    """
    reasons = []
    if spread(found) > max_spread:
        reasons.append(f"spread {spread(found):.0%} is above {max_spread:.0%}")
    if foreign > max_foreign and found.unit != COUNTED:
        reasons.append(f"others took {foreign:.0%} of the CPU time")
    if not reasons:
        return found
    return dataclasses.replace(found, valid=False, note=_join(found.note, "; ".join(reasons)))


def settle(measure: Callable[[], Found], *, clock: ForeignClock, attempts: int = 3, patience_s: float = 10.0) -> Found:
    """Measures until every ceiling passes, ``attempts`` times at most and not beyond ``patience_s``.

    Of each ceiling the first valid attempt is kept, else the one of least spread; caches and notes
    come from the attempt with the most valid ceilings.
    """
    start, tries = time.monotonic(), [_attempt(measure, clock)]
    while len(tries) < attempts and _unsettled(tries):
        each = (time.monotonic() - start) / len(tries)
        if time.monotonic() - start + each > patience_s:
            break
        tries.append(_attempt(measure, clock))
    best = max(tries, key=lambda found: sum(_passed(item) for item in found))
    rest = tuple(item for item in best if not isinstance(item, Ceiling))
    return (*_merged(tries), *rest)


def _attempt(measure: Callable[[], Found], clock: ForeignClock) -> Found:
    """One measurement judged. A sweep beside busy neighbours shows their knees, so it becomes a note."""
    mark = clock.mark()
    found = measure()
    foreign = clock.since(mark) - clock.resolution(mark)
    judged = tuple(judge(item, foreign) if isinstance(item, Ceiling) else item for item in found)
    if foreign <= MAX_FOREIGN or not any(_is_sweep(item) for item in judged):
        return judged
    kept = tuple(item for item in judged if not _is_sweep(item))
    return (*kept, f"{REFUSED_SWEEP}: others took {foreign:.0%} of the CPU time")


def _is_sweep(item: object) -> bool:
    return isinstance(item, Cache) and item.source == "sweep"


def _passed(item: object) -> bool:
    return item.valid if isinstance(item, Ceiling) else isinstance(item, Cache)


def _ceilings(found: Found) -> list[Ceiling]:
    return [item for item in found if isinstance(item, Ceiling)]


def _merged(tries: Sequence[Found]) -> tuple[Ceiling, ...]:
    """One ceiling of each key, in the order of first appearance."""
    by_key: dict[tuple[str, str | None, int], list[Ceiling]] = {}
    for found in tries:
        for item in _ceilings(found):
            by_key.setdefault((item.name, item.dtype, item.threads), []).append(item)
    return tuple(min(items, key=lambda c: (not c.valid, 0.0 if c.valid else spread(c))) for items in by_key.values())


def _unsettled(tries: Sequence[Found]) -> bool:
    refused = all(any(isinstance(i, str) and i.startswith(REFUSED_SWEEP) for i in found) for found in tries)
    return refused or not all(c.valid for c in _merged(tries))


def _join(*notes: str) -> str:
    return "; ".join(filter(None, notes))
