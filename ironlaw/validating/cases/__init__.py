"""One module for each kind of failure; each has ``CASES``.

dispatch       launch-bound calls, halved FLOPs that gain little, values read back, batches that would pay
quantise       int8 without a kernel, with saturation, or on operators that have none
kernels        half precision that is emulated, products far under the ceiling
fallback       operators that stay in float when a model is converted
compression    zeros that are multiplied, rounding around float products
memory         allocator storms, layouts that go back and forth, channels that miss the vectors, the crossover batch
inside         subnormal numbers, code that is compiled anew for every shape
threads        products of pools, threads on small work
loading        steps that wait for their input, and what fixing it is worth
timing         benchmarks that time something else, a clock that changes
verdicts       passes that are slower, claims that are not proven, energy that is not known
elsewhere      other machines, from recorded ledgers
communication  messages between machines, by their laws
"""

from __future__ import annotations

import importlib
import pkgutil

from ironlaw.validating.case import Case


def all_cases() -> tuple[Case, ...]:
    """Every case, those that run live first."""
    found: list[Case] = []
    for info in pkgutil.iter_modules(__path__):
        found += importlib.import_module(f"{__name__}.{info.name}").CASES
    return tuple(sorted(found, key=lambda case: (case.replayed, case.numbers or (999,), case.name)))
