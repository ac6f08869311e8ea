"""The ledger of a whole training step: forward, backward and optimiser, counted apart.

Why the second step is counted: the first also makes the optimiser's state. By default nothing is computed or
allocated: the step is run on fake tensors, so that a model larger than memory can be counted. All three phases share
one cache model, from a cold start, so that what backward finds in the cache is what forward left there.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ironlaw.measure.ledger_torch import Counter
from ironlaw.measure.training_step import Phase, Step, on_fakes, run
from ironlaw.records import Ledger, Op


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLedger:
    """What each phase of one step did. ``whole`` is their sum, in order; operators are not merged across phases."""

    forward: Ledger
    backward: Ledger
    optimiser: Ledger

    @property
    def whole(self) -> Ledger:
        phases = (self.forward, self.backward, self.optimiser)
        ops = tuple(op for phase in phases for op in phase.ops)
        return Ledger(ops=ops, batch=self.forward.batch, source=self.forward.source)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Operators without a formula, each once."""
        return tuple(dict.fromkeys(self.whole.uncounted))


def count_step(step: Step, *, cache_bytes: int | None = None, fakes: bool = True) -> StepLedger:
    """The ledger of a steady step; ``cache_bytes`` is the last-level cache, None counts only first touches.

    With ``fakes`` model and batch may be on the meta device or larger than memory; without, two steps are really
    taken (and change the model), which code that reads the values of tensors needs.

    Raises what torch raises where values decide the control flow, or an operator has no fake form.
    """
    with on_fakes(step) if fakes else nullcontext(step) as counted:
        optimiser = counted.optimiser(counted.model.parameters())
        run(counted, optimiser)
        weights = [*counted.model.parameters(), *counted.model.buffers()]
        found = _phases(counted, optimiser, Counter(weights, cache_bytes))
    source = "training step (fake)" if fakes else "training step"
    ledgers = {
        phase: Ledger(ops=found.get(phase, ()), batch=step.examples, source=source)
        for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISER)
    }
    return StepLedger(**{str(phase): ledger for phase, ledger in ledgers.items()})


def _phases(step: Step, optimiser: Any, counter: Counter) -> dict[Phase, tuple[Op, ...]]:
    """The operators of each phase; zeroing gradients belongs to none, and setting them to None is no operator."""
    found: dict[Phase, tuple[Op, ...]] = {}
    now = Phase.SETUP

    def enter(phase: Phase) -> None:
        nonlocal now
        found[now] = (*found.get(now, ()), *counter.take())
        now = phase

    with counter.mode():
        run(step, optimiser, enter)
    return found
