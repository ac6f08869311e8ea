"""The process in which one probe, or one target's calibration, runs: JSON on stdout, talk on stderr.

``python -m ironlaw.machine.runner --probe matmul --threads 2 --seconds 3 --cpus 0,1``

A process of its own, since thread pools, allocator settings and affinity hold from its start, and
since a runtime that crashes must not take the run with it. What libraries print goes to stderr, so
that stdout holds the answer only.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from typing import cast

from ironlaw.contracts import Probe
from ironlaw.machine.gate import MAX_FOREIGN, Findings, settle
from ironlaw.measure.foreign import ForeignClock
from ironlaw.records import Cache, Ceiling, UserError, to_json

PROBES = {
    "matmul": "matmul",
    "bandwidth": "bandwidth",
    "caches": "caches",
    "dispatch": "dispatch",
    "fault": "paging",
    "allocation": "paging",
    "spawn": "spawn",
    "gpu": "gpu",
}
"""The module of each probe."""


def probe(name: str) -> Probe:
    """The probe of that name; only its own module is loaded."""
    module = importlib.import_module(f"ironlaw.machine.{PROBES[name]}")
    return next(
        cast("Probe", cls())
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if getattr(cls, "name", "") == name
    )


def run_probe(name: str, threads: int, seconds: float, *, attempts: int, patience_s: float) -> Findings:
    chosen = probe(name)
    found = settle(
        lambda: chosen.measure(threads, seconds), clock=ForeignClock(), attempts=attempts, patience_s=patience_s
    )
    return Findings(
        ceilings=tuple(item for item in found if isinstance(item, Ceiling)),
        caches=tuple(item for item in found if isinstance(item, Cache)),
        notes=tuple(item for item in found if isinstance(item, str)),
    )


def run_target(name: str, threads: int, seconds: float) -> Findings:
    """Kernel rates of a target; not ``valid``, with a note, where others took too much of the CPU."""
    from ironlaw.registry import target

    chosen, clock = target(name), ForeignClock()
    mark = clock.mark()
    kernels = tuple(chosen.calibrate(threads, seconds))
    foreign = clock.since(mark) - clock.resolution(mark)
    if foreign <= MAX_FOREIGN:
        return Findings(kernels=kernels)
    note = f"calibration of {name} at {threads}: others took {foreign:.0%} of the CPU time"
    return Findings(kernels=tuple(dataclasses.replace(k, valid=False) for k in kernels), notes=(note,))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(cpu) for cpu in options.cpus.split(",")})
    answer = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        found = _answer(options)
    except UserError as error:
        sys.stderr.write(f"{error.given}: {error.wrong}\n")
        return error.exit_code
    with os.fdopen(answer, "w") as out:
        out.write(to_json(found) + "\n")
    return 0


def _answer(options: argparse.Namespace) -> Findings:
    if options.target:
        return run_target(options.target, options.threads, options.seconds)
    return run_probe(
        options.probe, options.threads, options.seconds, attempts=options.attempts, patience_s=options.patience
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ironlaw.machine.runner", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--probe", choices=sorted(PROBES))
    what.add_argument("--target", help="name of a target whose kernels are calibrated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cpus", default="", help="processors to run on, as 0,1; empty: all that may be used")
    parser.add_argument("--attempts", type=int, default=3, help="measurements at most until every ceiling passes")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds after which no attempt is begun")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
