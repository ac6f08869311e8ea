"""Channels-last memory for convolutional networks on the torch targets.

Why: the convolution library works on blocked or channels-last data; from NCHW it reorders every input and
output, twice the traffic of the activations. The prediction is what convolutions of these shapes take in either
layout; where that was not calibrated, the reorders' traffic over the measured copy rate, taken off their time.
Settings: none. It refuses networks without 2-D convolutions and other runtimes, which choose their own layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.levers._torch import measured_on_torch, seconds_of
from ironlaw.rates import CHANNELS_LAST
from ironlaw.records import Axis, Candidate, Change, Diagnosis, Interval, Kind, Machine, Op, Prediction, Term

_CONV = ("conv", "depthwise")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelsLastSettings:
    """Nothing to choose."""


class ChannelsLast:
    """Weights and images as NHWC in memory, with the same logical shapes."""

    name: ClassVar[str] = "channels_last"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.MEMORY, Term.COMPUTE, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset({"layout"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch"})
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "PyTorch documentation, Channels Last Memory Format; oneDNN developer guide, Memory Formats"
    Settings: ClassVar[type] = ChannelsLastSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        asked = measured_on_torch(candidate, diagnosis, "channels-last")
        if not asked:
            return asked
        if not _convolutions(diagnosis):
            return No("no 2-D convolution: channels-last is a layout of images")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        return [Option(settings=ChannelsLastSettings(), cost_s=0.5)]

    def predict(
        self, candidate: Candidate, settings: ChannelsLastSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """Convolutions without their reorders; other operators may be a little slower or faster this way."""
        execution = candidate.execution
        if machine.kernel(CHANNELS_LAST, "conv", execution.precision, threads=execution.threads):
            return predict.moved(
                diagnosis, machine, target=CHANNELS_LAST, dtype=execution.precision, threads=execution.threads
            )
        spent = seconds_of(diagnosis, _CONV)
        moved_bytes = 2.0 * sum(op.bytes_high - op.weights_bytes for op in _convolutions(diagnosis))
        saved_s = moved_bytes / _copy_rate(machine, candidate.execution.threads, moved_bytes)
        share = min(0.6, saved_s / spent.value) if spent.value else 0.0
        factor = Interval(low=0.85, value=1 / (1 - 0.5 * share), high=1 / (1 - min(0.7, 1.5 * share)))
        basis = f"reorders of {moved_bytes / 1e6:.3g} MB around convolutions would end"
        return predict.amdahl(diagnosis, seconds=spent, factor=factor, basis=basis)

    def apply(self, candidate: Candidate, settings: ChannelsLastSettings) -> tuple[Candidate, Change]:
        execution = candidate.execution.with_options(layout="channels_last")
        return changed(self, candidate, settings, execution=execution)


def _convolutions(diagnosis: Diagnosis) -> tuple[Op, ...]:
    """Convolutions over images: the input's rank is read from the ledger's shape, unknown shapes count."""
    return tuple(
        op
        for op in diagnosis.ledger.ops
        if op.kind in _CONV and (not op.shape or op.shape.split(",")[0].count("x") == 3)
    )


def _copy_rate(machine: Machine, threads: int, moved_bytes: float) -> float:
    """Bytes a second of a copy in torch; the bandwidth ceiling where it was not calibrated."""
    kernel = machine.kernel("torch", "copy", "fp32", threads=threads)
    if kernel is not None:
        return kernel.rate.value
    ceiling = machine.ceiling("dram", threads=threads)
    return ceiling.value if ceiling is not None else max(moved_bytes, 1.0) / 1e-3
