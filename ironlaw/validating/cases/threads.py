"""Threads that are too many: pools that multiply each other, work that is too small to share."""

from __future__ import annotations

import torch

from ironlaw.records import Execution, Term
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here

_PROCESSES = 8


def _product(here: Here, replicas: int, threads: int) -> Said:
    run = Execution(replicas=replicas, threads=threads)
    seen = here.examine(models.mlp(64, 64), torch.randn(4, 64), execution=run, inside=True)
    found = seen.found.get("oversubscription")
    cores = seen.facts.cores
    words = f"{replicas} x {threads} threads on {cores} cores"
    return Said(fires=found is not None, words=found.evidence if found else words)


def _more_threads(here: Here, rows: int, width: int) -> Said:
    """More threads are bounded under what is worth a trial."""
    cores = here.machine.environment.identity.cores
    models.seeded()
    found = here.examine(models.Product(torch.randn(width, width)), torch.randn(rows, width)).diagnosis
    bound = next(one for one in found.bounds if one.change == "more threads")
    if cores == 1 and rows > 1:
        return Said(fires=None, words="there is one core")
    if rows == 1 and not bound.wasted and found.dominant in (None, Term.LATENCY):
        return Said(fires=None, words=f"{bound.reason}; {found.why}")
    return Said(fires=bound.wasted, words=bound.reason)


CASES = (
    Case(
        name="thread-product",
        numbers=(39, 40),
        reference="open-mmlab/mmdetection PR 6867; apache/mxnet PR 12025",
        situation="eight processes with as many threads each as there are cores",
        verdict="the product of processes and threads is above the cores",
        cured="one process with a thread",
        ask=lambda here: _product(here, _PROCESSES, here.machine.environment.identity.cores),
        ask_cured=lambda here: _product(here, 1, 1),
    ),
    Case(
        name="threads-on-small-work",
        numbers=(41,),
        reference="szilard/GBM-perf#9",
        situation="a product of one row with 16 x 16 weights",
        verdict="more threads give nothing",
        cured="512 rows with 1024 x 1024 weights",
        ask=lambda here: _more_threads(here, 1, 16),
        ask_cured=lambda here: _more_threads(here, 512, 1024),
    ),
)
