"""What levers of a training job's input share: when they are wanted, and how long a step would be.

All is reasoned from what the diagnosis measured: a step on batches that were in memory, the loader's own stages, what
a worker's batch costs to receive. Loader workers that compute take cores from the step, so that a step is at
least all CPU work over the cores. The cap is the measured gain of cached input, never a share of a profile.
"""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.contracts import No, Yes
from ironlaw.records import Diagnosis, Interval, Loader, Machine, Prediction, StepTimes

WORTH = 1.03
RECEIVE_S = 3e-4
"""Of a batch from a worker, where it was not measured: a few tensors through shared memory."""
_MOST = 50.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """The step and the loader of one diagnosis, on ``cores`` that may be used."""

    step: StepTimes
    loader: Loader
    cores: int

    @property
    def total_s(self) -> float:
        return self.step.total.value

    def step_s(self, *, workers: int, load_s: float, restarts: bool) -> float:
        """Seconds of a step with that many workers, where a batch takes ``load_s`` of one process."""
        alone = self.step.cached.value
        restart = self.step.restart.value if restarts else 0.0
        if workers == 0:
            return alone + load_s
        receive = self.loader.transfer_s if self.loader.transfer_s is not None else RECEIVE_S
        busy = load_s * (self.loader.cpu_share if self.loader.cpu_share is not None else 1.0)
        shared = (self.step.cpu_s + busy + receive) / self.cores
        return max(alone + receive, load_s / workers, shared) + restart


def of(diagnosis: Diagnosis, machine: Machine) -> Input | None:
    """None where the diagnosis is of no training job."""
    if diagnosis.step is None or diagnosis.loader is None:
        return None
    cores = max(1, min(machine.environment.identity.cores, diagnosis.threads))
    return Input(step=diagnosis.step, loader=diagnosis.loader, cores=cores)


def wanted(found: Input | None) -> Yes | No:
    """Whether anything done to the input can help at all, with the cap that was measured."""
    if found is None:
        return No("nothing is known of a loader here")
    if found.loader.fetch_s is None or found.loader.samples is None:
        why = found.loader.note or "its dataset is not read by index"
        return No(f"batches come from a {found.loader.kind}, whose settings cannot be changed: {why}")
    cap = max(found.step.gain.median, found.step.gain.high)
    if cap < WORTH:
        return No(f"at most {cap:.2f}x: a step on batches in memory takes {_ms(found.step.cached.value)}, no less")
    return Yes()


def prediction(found: Input, step_s: float, why: str, *, low: float = 0.8, high: float = 1.15) -> Prediction:
    """The gain of steps of ``step_s``, never more than cached input gave."""
    cap = max(1.0, found.step.gain.high)
    gain = min(_MOST, max(0.05, found.total_s / step_s))
    value = min(gain, cap)
    speedup = Interval(low=low * value, value=value, high=max(value, min(high * gain, 1.02 * cap)))
    return Prediction(speedup=speedup, basis=f"a step of {_ms(step_s)} for {_ms(found.total_s)}: {why}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
