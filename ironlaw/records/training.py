"""Where the wall time of a training step goes and what its loader does, as measured, before any term is named."""

from __future__ import annotations

from dataclasses import dataclass

from ironlaw.records.numbers import Gain, Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """Seconds of one step, 95 % over launches; the parts sum to ``total``.

    ``wait`` is spent blocked in ``next(loader)``; ``restart`` is what beginning an epoch takes, shared out over its
    steps; ``copy`` brings a batch to a device that is not the CPU; ``optimiser`` is ``zero_grad`` and ``step``;
    ``rest`` is the loop between them. ``cached`` is a step on batches that are already in memory, and ``gain`` how
    much faster that is, paired; ``contention`` is what forward, backward and optimiser take longer beside loading.
    ``faults``, ``cpu_s`` and ``system_s`` are of a step on cached batches.
    """

    total: Interval
    wait: Interval
    restart: Interval
    copy: Interval
    forward: Interval
    backward: Interval
    optimiser: Interval
    rest: Interval
    cached: Interval
    contention: Interval
    gain: Gain
    faults: float
    cpu_s: float
    system_s: float
    foreign_cpu: float
    device: str
    batch: int
    steps: int
    blocks: int
    launches: int

    @property
    def io_s(self) -> float:
        """Input in all its forms: waiting, beginning epochs, copying."""
        return self.wait.value + self.restart.value + self.copy.value

    @property
    def work_s(self) -> float:
        """Forward, backward and optimiser."""
        return self.forward.value + self.backward.value + self.optimiser.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Loader:
    """What feeds the job, and seconds a batch of its stages in one process that does nothing else.

    What is not known is None, and ``note`` says why. ``transform_s`` lies within ``fetch_s``; ``transfer_s`` is
    receiving a ready batch from a worker. ``cpu_share`` is CPU time over wall time while loading: below 1 it waits for
    storage or a network. ``worker_cpu`` is what one loader worker takes of a CPU while the job trains,
    ``worker_threads`` the threads that it has.

    Of a dataset that is read by index: ``samples`` in all, ``sample_bytes`` of one as tensors (None where shapes
    differ), whether it ``repeats`` (the same index gives the same sample), and whether a list of indices gives the
    collated batch (``slices``).
    """

    kind: str
    workers: int = 0
    prefetch: int = 0
    persistent: bool = False
    pinned: bool = False
    batches: int | None = None
    fetch_s: float | None = None
    transform_s: float | None = None
    collate_s: float | None = None
    transfer_s: float | None = None
    cpu_share: float | None = None
    worker_cpu: float | None = None
    worker_threads: int | None = None
    samples: int | None = None
    sample_bytes: int | None = None
    repeats: bool | None = None
    slices: bool | None = None
    note: str = ""

    @property
    def load_s(self) -> float | None:
        """Fetching and collating one batch."""
        return None if self.fetch_s is None else self.fetch_s + (self.collate_s or 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingMemory:
    """Peak of the first steps of a training, by part, at the moment when live tensors were most.

    Buffers count as parameters. Activations are what forward (or a recomputation) made and backward or the
    caller still held when it ended; temporaries are all the rest. ``moment`` names the phase and the operator.
    """

    parameters_bytes: float
    gradients_bytes: float
    optimiser_bytes: float
    activations_bytes: float
    temporaries_bytes: float
    inputs_bytes: float
    moment: str
    allocated_bytes: float
    resident_bytes: Interval
    source: str

    @property
    def tensor_bytes(self) -> float:
        held = self.parameters_bytes + self.gradients_bytes + self.optimiser_bytes + self.inputs_bytes
        return held + self.activations_bytes + self.temporaries_bytes
