"""The peak of a training step, by part: when parameters, gradients, state and activations are greatest together.

Why a walk over layers: parameters and optimiser state are always there, but activations shrink while
gradients grow, so the peak is not the sum of the parts' own peaks. It counts the tensors that a step
of a chain of layers needs; allocator slack and the framework's own memory are measured, not derived,
and it refuses to guess them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ironlaw.laws.checks import nonnegative, whole
from ironlaw.laws.law import Law, at_least, count

CHEN = "Chen, Xu, Zhang, Guestrin, Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174, sections 3 and 4"


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerMemory:
    """One layer of a step, in forward order.

    ``saved_bytes`` is what backward keeps of it, its output included where backward needs it;
    ``output_bytes`` the size of its output (and of that output's gradient); ``temporary_bytes``
    workspace while its backward runs.
    """

    parameter_bytes: float
    saved_bytes: float
    output_bytes: float
    temporary_bytes: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The parts at the moment when their sum is greatest; ``moment`` says when that is."""

    parameters_bytes: float
    gradients_bytes: float
    optimiser_bytes: float
    activations_bytes: float
    temporaries_bytes: float
    moment: str

    @property
    def total_bytes(self) -> float:
        held = self.parameters_bytes + self.gradients_bytes + self.optimiser_bytes
        return held + self.activations_bytes + self.temporaries_bytes


def training_peak(
    layers: Sequence[LayerMemory],
    *,
    optimiser_bytes: float,
    segments: int = 0,
    gradients_kept: bool = False,
    step_temporary_bytes: float = 0.0,
) -> Peak:
    """Peak of a steady training step of a chain of layers, by part.

    During the backward of layer ``i``: what the layers up to ``i`` saved, parameter gradients of ``i``
    and the layers after it (of all layers with ``gradients_kept``: accumulation, or zeroed in place),
    the gradients of the layer's output and input, and its workspace. ``segments`` above 0 checkpoints:
    only the input of each segment is kept, and the segment at work is saved again. In the optimiser step:
    all gradients and ``step_temporary_bytes``. Stops holding for graphs that are not chains.
    """
    if not layers:
        raise ValueError("layers must hold at least one layer")
    nonnegative(optimiser_bytes=optimiser_bytes, step_temporary_bytes=step_temporary_bytes)
    whole(0, segments=segments)
    if segments > len(layers):
        raise ValueError(f"segments must not exceed the {len(layers)} layers, got {segments}")
    parameters = sum(layer.parameter_bytes for layer in layers)
    starts = segment_starts(len(layers), segments)
    moments = [_backward(layers, index, starts, optimiser_bytes, gradients_kept) for index in range(len(layers))]
    moments.append(
        Peak(
            parameters_bytes=parameters,
            gradients_bytes=parameters,
            optimiser_bytes=optimiser_bytes,
            activations_bytes=0.0,
            temporaries_bytes=step_temporary_bytes,
            moment="optimiser step",
        )
    )
    return max(moments, key=lambda peak: peak.total_bytes)


def segment_starts(layers: int, segments: int) -> tuple[int, ...]:
    """First layer of each checkpointed segment, as even as can be; empty when there is none."""
    return tuple(math.ceil(layers * k / segments) for k in range(segments))


def _backward(
    layers: Sequence[LayerMemory], index: int, starts: Sequence[int], optimiser_bytes: float, gradients_kept: bool
) -> Peak:
    first = max((s for s in starts if s <= index), default=0)
    end = min((s for s in starts if s > index), default=len(layers)) if starts else index + 1
    boundaries = sum(layers[s - 1].output_bytes for s in starts if 0 < s <= index)
    saved = sum(layer.saved_bytes for layer in layers[first : index + 1])
    recomputing = index == end - 1 and bool(starts)
    done = layers if gradients_kept else layers[index:]
    layer = layers[index]
    before = layers[index - 1].output_bytes if index else 0.0
    return Peak(
        parameters_bytes=sum(each.parameter_bytes for each in layers),
        gradients_bytes=sum(each.parameter_bytes for each in done),
        optimiser_bytes=optimiser_bytes,
        activations_bytes=saved + boundaries,
        temporaries_bytes=layer.output_bytes + before + layer.temporary_bytes,
        moment=f"backward of layer {index}" + (" after recomputing its segment" if recomputing else ""),
    )


def _by_lists(
    *,
    parameter_bytes: Sequence[float],
    saved_bytes: Sequence[float],
    output_bytes: Sequence[float],
    optimiser_bytes: float,
    segments: int,
) -> dict[str, float]:
    lengths = (len(parameter_bytes), len(saved_bytes), len(output_bytes))
    if len(set(lengths)) > 1:
        raise ValueError(f"parameter_bytes, saved_bytes and output_bytes must name the same layers, got {lengths}")
    layers = [
        LayerMemory(parameter_bytes=p, saved_bytes=s, output_bytes=o)
        for p, s, o in zip(parameter_bytes, saved_bytes, output_bytes, strict=True)
    ]
    found = training_peak(layers, optimiser_bytes=optimiser_bytes, segments=segments)
    return {
        "parameters_bytes": found.parameters_bytes,
        "gradients_bytes": found.gradients_bytes,
        "optimiser_bytes": found.optimiser_bytes,
        "activations_bytes": found.activations_bytes,
        "temporaries_bytes": found.temporaries_bytes,
        "total_bytes": found.total_bytes,
    }


LAWS = (
    Law(
        name="training-peak",
        family="memory",
        title="Peak of a training step, by part",
        equation="max over backward of layer i: P + O + sum_{j<=i} saved_j + sum_{j>=i} grad_j + out_i + out_{i-1}",
        inputs=(
            at_least(0, "parameter_bytes", "B", "parameters of each layer, in forward order", many=True),
            at_least(0, "saved_bytes", "B", "what backward keeps of each layer", many=True),
            at_least(0, "output_bytes", "B", "output of each layer", many=True),
            at_least(0, "optimiser_bytes", "B", "optimiser state of the whole model", default=0.0),
            count("segments", "checkpointed segments; 0 keeps everything", low=0, default=0),
        ),
        unit="B",
        valid_while="layers form a chain and gradients are released after each step; allocator slack comes on top",
        source=CHEN,
        function=_by_lists,
        example=(
            ("parameter_bytes", [4e6, 4e6, 4e6]),
            ("saved_bytes", [3e7, 2e7, 1e7]),
            ("output_bytes", [1e7, 5e6, 1e6]),
            ("optimiser_bytes", 2.4e7),
        ),
    ),
)
