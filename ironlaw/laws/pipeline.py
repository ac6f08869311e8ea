"""Pipeline parallelism: the time lost to filling and draining, and the micro-batches held meanwhile.

Why the bubble as a share of all time: it then adds up with the other terms of a step; the papers that
divide by the ideal time instead are named. They hold for equal stages and free communication; a
slower stage sets the pace of all, which ``step_s`` takes as its stage time. They refuse interleaving
that the schedule cannot do (micro-batches not a multiple of the stages).
"""

from __future__ import annotations

from ironlaw.laws.checks import nonnegative, whole
from ironlaw.laws.law import Input, Law, at_least, count

HUANG = "Huang et al., GPipe, NeurIPS 2019, section 2.3"
NARAYANAN = "Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, SC 2021, section 2.2"
KORTHIKANTI = "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, section 4.2.3"
SCHEDULES = ("gpipe", "1f1b", "interleaved")


def bubble_fraction(*, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Share of a step in which a stage idles: ``(p-1) / (v m + p - 1)``, ``v`` chunks a stage.

    ``chunks`` 1 is GPipe and 1F1B, whose bubbles are equal; more is interleaved 1F1B.
    """
    _check(stages, micro_batches, chunks)
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def bubble_over_ideal(*, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Bubble over the ideal time, as Megatron's papers state it: ``(p-1) / (v m)``."""
    _check(stages, micro_batches, chunks)
    return (stages - 1) / (chunks * micro_batches)


def step_s(*, stages: int, micro_batches: int, forward_s: float, backward_s: float, chunks: int = 1) -> float:
    """Time of a step: ``(m + (p-1)/v) (forward + backward)``; times of one micro-batch on one whole stage."""
    _check(stages, micro_batches, chunks)
    nonnegative(forward_s=forward_s, backward_s=backward_s)
    return (micro_batches + (stages - 1) / chunks) * (forward_s + backward_s)


def micro_batches_held(*, schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Micro-batches whose activations the first stage holds at most, counted in whole stages.

    GPipe holds all; 1F1B ``min(p, m)``; interleaved ``p (1 + (p-1)/(p v))``, at most all.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")
    _check(stages, micro_batches, chunks)
    if schedule != "interleaved" and chunks != 1:
        raise ValueError(f"chunks must be 1 for {schedule}, got {chunks}")
    if schedule == "gpipe":
        return float(micro_batches)
    if chunks == 1:
        return float(min(stages, micro_batches))
    return min(float(micro_batches), stages * (1.0 + (stages - 1) / (stages * chunks)))


def _check(stages: int, micro_batches: int, chunks: int) -> None:
    whole(stages=stages, micro_batches=micro_batches, chunks=chunks)
    if chunks > 1 and micro_batches % stages:
        raise ValueError(
            f"micro_batches must be a multiple of stages when chunks is above 1, got {micro_batches} and {stages}"
        )


_SHAPE = (
    count("stages", "stages of the pipeline (p)"),
    count("micro_batches", "micro-batches of a step (m)"),
    count("chunks", "chunks of layers a stage (v); above 1 is interleaved", default=1),
)
_EQUAL = "stages take equal time, sending is free or hidden, and the optimiser step waits for the drain"
_EXAMPLE = (("stages", 4), ("micro_batches", 16))

LAWS = (
    Law(
        name="bubble",
        family="pipeline",
        title="Share of a step lost to the pipeline bubble",
        equation="(p - 1) / (v m + p - 1)",
        inputs=_SHAPE,
        unit="1",
        valid_while=_EQUAL,
        source=f"{HUANG}; {NARAYANAN}",
        function=bubble_fraction,
        example=_EXAMPLE,
    ),
    Law(
        name="bubble-over-ideal",
        family="pipeline",
        title="Pipeline bubble over the ideal time",
        equation="(p - 1) / (v m)",
        inputs=_SHAPE,
        unit="1",
        valid_while=_EQUAL,
        source=NARAYANAN,
        function=bubble_over_ideal,
        example=(*_EXAMPLE, ("chunks", 2)),
    ),
    Law(
        name="pipeline-step",
        family="pipeline",
        title="Time of a pipelined step",
        equation="(m + (p - 1) / v) (forward + backward)",
        inputs=(
            *_SHAPE[:2],
            at_least(0, "forward_s", "s", "forward of one micro-batch on one stage"),
            at_least(0, "backward_s", "s", "backward of one micro-batch on one stage"),
            _SHAPE[2],
        ),
        unit="s",
        valid_while=_EQUAL,
        source=NARAYANAN,
        function=step_s,
        example=(*_EXAMPLE, ("forward_s", 0.01), ("backward_s", 0.02)),
    ),
    Law(
        name="pipeline-memory",
        family="pipeline",
        title="Micro-batches whose activations the first stage holds",
        equation="gpipe: m; 1f1b: min(p, m); interleaved: min(m, p (1 + (p-1)/(p v)))",
        inputs=(
            Input(name="schedule", unit="", meaning="order of forwards and backwards", choices=SCHEDULES),
            *_SHAPE,
        ),
        unit="micro-batches on a whole stage",
        valid_while="stages hold equal activations and every forward runs as early as the schedule lets it",
        source=f"{NARAYANAN}; {KORTHIKANTI}",
        function=micro_batches_held,
        example=(("schedule", "interleaved"), *_EXAMPLE, ("chunks", 2)),
    ),
)
