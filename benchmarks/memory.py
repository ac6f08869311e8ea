"""How near is the predicted peak memory of a training step, by part and resident, to what is measured.

Seven families, each with SGD with momentum and AdamW at two batches (``benchmarks/trained.py``). The prediction is
made on fake tensors before anything is run; what is measured comes from fresh processes: live tensors from the log of
storages, allocated bytes from torch's own allocator without that log, resident memory from the system, as the median of
three launches. Memory does not
depend on load, so that this benchmark may run beside others.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import product

from benchmarks import common

TENSORS = (1.0, 1.05)
RESIDENT = 0.15
LAUNCHES = 3
QUICK = ("mlp", "decoder")
_M = 2**20


@dataclass(frozen=True, slots=True)
class Case:
    family: str
    optimiser: str
    batch: int

    def __str__(self) -> str:
        return f"{self.family} {self.optimiser} {self.batch}"


def run(options: common.Options) -> common.Report:
    report = options.report("memory")
    everything = cases()
    chosen = [case for case in everything if options.wants(case.family) or options.wants(str(case))]
    if options.quick:
        chosen = [case for case in chosen if case.family in QUICK and case.optimiser == "adamw"][::2]
        report.left_out.append(f"{len(everything) - len(chosen)} of {len(everything)} cases")
    if not options.quick and len(chosen) < len(everything):
        report.unjudged = "only some of the cases were asked for"
    launches = options.launches or (1 if options.quick else LAUNCHES)
    for case in chosen:
        options.talk(str(case))
        report.arms.append(_row(case, launches))
    _goals(report)
    return report


def cases() -> list[Case]:
    from benchmarks import trained

    return [
        Case(family, optimiser, batch)
        for family, optimiser in product(trained.BATCHES, trained.OPTIMISERS)
        for batch in trained.BATCHES[family]
    ]


def _row(case: Case, launches: int) -> dict[str, common.Cell]:
    import torch

    from benchmarks import trained
    from ironlaw.measure.training_memory import measured_peak, predicted_peak

    build = functools.partial(trained.build, case.family, case.batch, case.optimiser)
    with torch.device("meta"):
        predicted = predicted_peak(build())
    measured = measured_peak(build, launches=launches)
    expected, seen = predicted.resident_bytes, measured.resident_bytes
    return {
        "case": str(case),
        "tensors predicted MB": predicted.tensor_bytes / _M,
        "measured": measured.tensor_bytes / _M,
        "tensors": predicted.tensor_bytes / measured.tensor_bytes,
        "allocated predicted MB": predicted.allocated_bytes / _M,
        "allocated measured": measured.allocated_bytes / _M,
        "allocated": predicted.allocated_bytes / measured.allocated_bytes,
        "resident predicted MB": expected.value / _M,
        "resident low": expected.low / _M,
        "resident high": expected.high / _M,
        "resident measured": seen.value / _M,
        "resident least": seen.low / _M,
        "resident most": seen.high / _M,
        "resident": expected.value / seen.value,
        "at": predicted.moment,
    }


def _goals(report: common.Report) -> None:
    """Every ratio counts, so the goal is set on the furthest; how far apart those are is shown as the interval."""
    for name, low, high in (
        ("tensors", *TENSORS),
        ("allocated", None, TENSORS[1]),
        ("resident", 1 - RESIDENT, 1 + RESIDENT),
    ):
        ratios = [float(arm[name]) for arm in report.arms if isinstance(arm[name], float)]
        least, most = min(ratios, default=None), max(ratios, default=None)
        if low is not None:
            report.goal(f"{name}: least predicted over measured", least, least, least, at_least=low)
        report.goal(f"{name}: greatest predicted over measured", most, most, most, at_most=high)


if __name__ == "__main__":
    common.main("memory", run)
