"""A search that ended by itself, kept as a fact: the same command then repeats it instead of searching again.

A second search would know more than the first did (full measurements from the start) and would try other points.
What the time limit ended is not kept, since the same command is how a user lets it go on. Other limits of a trial make
another search: a point that failed at a limit is tried again when it is raised.
"""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.bench import Bench
from ironlaw.plan.space import Plan, Space
from ironlaw.records import Refusal, digest_of, from_data, to_data

VERSION = 1
"""Raised when the search itself changes, so that what an older one found is looked for again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """What was tried, in order; in words what could not win (``dropped``) and what had no time left."""

    tried: tuple[Plan, ...]
    dropped: tuple[str, ...]
    unaffordable: tuple[str, ...]
    refused: tuple[Refusal, ...]
    ended_because: str


def known(bench: Bench, space: Space) -> Finished | None:
    """The search of these levers under this goal, when it was finished before."""
    data = bench.store.fact(_key(bench, space), "search")
    return None if data is None else from_data(Finished, data)


def keep(bench: Bench, space: Space, found: Finished) -> None:
    """Keep it. Raises UserError when the store cannot be written."""
    bench.store.keep(_key(bench, space), "search", to_data(found))


def _key(bench: Bench, space: Space) -> str:
    levers = sorted((lever.name, lever.version) for lever in space.levers.values())
    limits = (bench.limits.trial_s, bench.limits.memory_bytes)
    return digest_of((*bench.context, bench.base.goal, levers, limits, VERSION))[:20]
