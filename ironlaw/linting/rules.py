"""Every rule with why it matters and what to write instead, and the record of a mistake."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """``id`` is stable: tools and people refer to it."""

    id: str
    why: str
    instead: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """A rule that a line breaks; ``message`` names what stands there."""

    rule: str
    line: int
    message: str
    why: str
    instead: str


RULES = {
    rule.id: rule
    for rule in (
        Rule(
            id="wall-clock",
            why="this clock is set by the system (it may jump, even backwards) and can be coarse",
            instead="time.perf_counter()",
        ),
        Rule(
            id="no-warm-up",
            why="first calls allocate, choose kernels, fill caches and start threads: they are not what runs later",
            instead="call it a few times before the clock starts, or drop the first samples",
        ),
        Rule(
            id="compile-inside",
            why="a compiler works at the first call, for seconds: that is timed instead of the model",
            instead="compile, then call it at least once with the same shapes before the clock starts",
        ),
        Rule(
            id="few-samples",
            why="one call meets one moment of the machine; fewer than 10 say nothing of a difference or a tail",
            instead="time each of at least 10 calls (30 or more for a percentile) and keep every sample",
        ),
        Rule(
            id="mean-only",
            why="a mean hides stalls and gives no interval: two means cannot be told apart",
            instead="keep each sample; report the median with quartiles or an interval",
        ),
        Rule(
            id="no-synchronisation",
            why="calls on an accelerator return before the work is done: the clock sees only the launch",
            instead="torch.cuda.synchronize() (torch.mps.synchronize()) before both reads of the clock, or CUDA events",
        ),
        Rule(
            id="copy-inside",
            why="a copy between host and device takes the time of the bus, often more than the model",
            instead="move the model and its inputs before the clock starts (or time the copy on its own)",
        ),
        Rule(
            id="data-inside",
            why="making or reading data takes time that the model does not",
            instead="prepare inputs before the clock starts",
        ),
        Rule(
            id="printing-inside",
            why="a terminal or a log file can take longer than the call, and varies",
            instead="keep values and print them after the clock has stopped",
        ),
        Rule(
            id="grad-on",
            why="autograd records every operator and keeps activations: slower and larger than inference",
            instead="with torch.inference_mode(): around the timed calls",
        ),
        Rule(
            id="train-mode",
            why="dropout draws random numbers and batch norms update statistics: another program than in service",
            instead="model.eval() before timing",
        ),
    )
}


def mistake(rule: str, line: int, message: str) -> Mistake:
    known = RULES[rule]
    return Mistake(rule=rule, line=line, message=message, why=known.why, instead=known.instead)
