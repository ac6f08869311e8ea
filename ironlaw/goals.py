"""The goal from what a user wrote, checked; the same for the command line and for Python."""

from __future__ import annotations

from typing import TypedDict

from ironlaw import quantities, registry
from ironlaw.measure.energy import counter
from ironlaw.records import Goal, Objective, UserError


class Wanted(TypedDict, total=False):
    """The goal as a user writes it: the keywords that ``tune`` and ``plan`` take and pass on, written once.

    What is left out has the default of :func:`goal_of`; what each means is said in :func:`ironlaw.api.tune`.
    """

    objective: str | None
    max_drop: str | float
    min_quality: float | None
    p99: str | float | None
    rate: str | float | None
    max_size: str | int | None
    max_memory: str | int | None
    allow_modelled: bool
    cores: int | None
    target: str | None


def goal_of(
    *,
    objective: str | None = None,
    max_drop: str | float = "1pt",
    min_quality: float | None = None,
    p99: str | float | None = None,
    rate: str | float | None = None,
    max_size: str | int | None = None,
    max_memory: str | int | None = None,
    allow_modelled: bool = False,
    cores: int | None = None,
    target: str | None = None,
) -> Goal:
    """The goal from what the user wrote; the target must be known, and energy must be counted or modelled.

    Without an objective it is latency.
    """
    objective = objective or Objective.LATENCY
    if objective == Objective.ENERGY and not allow_modelled and counter() is None:
        raise UserError(
            "--objective energy", "there are no energy counters here that this process may read (RAPL, through zeus)",
            "Install ironlaw[energy] where the machine has them, or accept a model with --allow-modelled.", exit_code=4,
        )  # fmt: skip
    if rate is not None and objective != Objective.LATENCY:
        raise UserError(
            f"--rate {rate}", f"is about latency under arrivals, the objective is {objective}",
            "Leave it away, or use --objective latency.",
        )  # fmt: skip
    if target is not None:
        registry.target(target)
    return Goal(
        objective=_known(objective),
        max_drop=quantities.budget(max_drop, "--max-drop"),
        min_quality=min_quality,
        p99_s=None if p99 is None else quantities.seconds(p99, "--p99"),
        rate_per_s=None if rate is None else quantities.rate(rate, "--rate"),
        max_size_bytes=None if max_size is None else quantities.size_bytes(max_size, "--max-size"),
        max_memory_bytes=None if max_memory is None else quantities.size_bytes(max_memory, "--max-memory"),
        cores=cores,
        target=target,
        allow_modelled_energy=allow_modelled,
    )


def _known(name: str) -> Objective:
    if name not in list(Objective):
        raise UserError(f"--objective {name}", "is not known", f"Use: {', '.join(Objective)}.")
    return Objective(name)
