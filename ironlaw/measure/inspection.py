"""Looks inside a loaded torch model for what neither the ledger nor the clock shows.

One call runs under a dispatch mode that reads values: subnormals in every result, exact zeros in every weight that
a convolution or product multiplies (so that a mask applied on the way is seen as well). Other calls run as they
are, to see which threads work, and what a compiler does when the batch changes. It refuses to time anything but
one comparison: a call with subnormals flushed against the same call without, in turns, and only where there are
some, since whether they cost anything depends on the CPU.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironlaw.measure.inspection_values import flushed_speedup, flushes_subnormals, values_of
from ironlaw.records import Inspection, Pairs

SUSPICIOUS = 1e-3
"""Share of subnormal values from which on flushing them is tried."""
WATCH_S = 0.1
"""Calls are watched for about so long to see which threads work."""
MORE_ROWS = (1, 2, 3, 4)
"""Rows added to the batch, one shape each, where something was compiled."""
_IDLE = 0.1
"""A thread that used less than this share of the busiest one's CPU time is not working."""

Call = Callable[..., object]


def inspect_torch(module: Any, call: Call, inputs: tuple[Any, ...], *, vary: bool) -> Inspection:
    """What one process sees in a module while ``call(*inputs)`` is one call of what is measured.

    ``vary`` allows calls with more rows on axis 0, where the module holds code that is compiled. Whatever the model
    raises on its own inputs goes through.
    """
    call(*inputs)
    busy = busy_threads(lambda: call(*inputs))
    shapes = _shapes_tried(call, inputs) if vary and _compiled()[0] else 1
    graphs, breaks, recompiles = _compiled()
    seen = values_of(module, lambda: call(*inputs))
    flushes = flushes_subnormals()
    suspicious = not flushes and max(seen.subnormal, seen.subnormal_weights) >= SUSPICIOUS
    return Inspection(
        subnormal_weights=seen.subnormal_weights,
        subnormal_activations=seen.subnormal,
        flushes_subnormals=flushes,
        flushed_speedup=flushed_speedup(lambda: call(*inputs)) if suspicious else None,
        zero_share=seen.zero_share,
        zeros=seen.sparse(),
        widths=widths(module),
        pools=pools(),
        busy_threads=busy,
        graphs=graphs,
        graph_breaks=breaks,
        shapes=shapes,
        recompiles=recompiles,
    )


def busy_threads(call: Callable[[], object]) -> int | None:
    """Threads of this process that used the CPU while ``call`` ran; None where the system does not say."""
    before = _cpu_ns()
    end = time.perf_counter() + WATCH_S
    call()
    call()
    while time.perf_counter() < end:
        call()
    spent = [used - before.get(thread, 0) for thread, used in _cpu_ns().items()]
    most = max(spent, default=0)
    return sum(used > _IDLE * most for used in spent) if most > 0 else None


def _cpu_ns() -> dict[str, int]:
    """Nanoseconds on a CPU of each thread of this process; empty where Linux's scheduler does not tell."""
    found = {}
    tasks = Path("/proc/self/task")
    for thread in os.listdir(tasks) if tasks.exists() else ():
        try:
            found[thread] = int((tasks / thread / "schedstat").read_text().split()[0])
        except OSError:
            continue  # it ended meanwhile, or the kernel keeps no such account
    return found


def pools() -> Pairs:
    """Threads of each pool that lives in this process, by library."""
    import torch
    from threadpoolctl import threadpool_info

    found: dict[str, int] = {"torch": torch.get_num_threads(), "torch interop": torch.get_num_interop_threads()}
    for pool in threadpool_info():
        found[f"{pool['internal_api']} ({pool['prefix']})"] = int(pool["num_threads"])
    if "cv2" in sys.modules:
        found["cv2"] = int(sys.modules["cv2"].getNumThreads())
    return tuple(found.items())


def widths(module: Any) -> Pairs:
    """Channels in and out of every layer that declares them."""
    found: list[tuple[str, int]] = []
    for name, layer in module.named_modules() if hasattr(module, "named_modules") else ():
        for side, names in (("in", ("in_channels", "in_features")), ("out", ("out_channels", "out_features"))):
            sizes = [getattr(layer, one) for one in names if isinstance(getattr(layer, one, None), int)]
            found += [(f"{name or 'model'}.{side}", size) for size in sizes]
    return tuple(found)


def _compiled() -> tuple[int, int, int]:
    """Graphs that TorchDynamo made in this process, graph breaks, and how often one frame was compiled again."""
    if "torch._dynamo.convert_frame" not in sys.modules:
        return 0, 0, 0
    from torch._dynamo import convert_frame
    from torch._dynamo.utils import counters

    again = max(convert_frame.FRAME_COMPILE_COUNTER.values(), default=1) - 1
    return int(counters["stats"]["unique_graphs"]), sum(counters["graph_break"].values()), max(0, again)


def _shapes_tried(call: Call, inputs: tuple[Any, ...]) -> int:
    """Calls with more and more rows; the number of shapes that the model took, its own included."""
    tried = 1
    for more in MORE_ROWS:
        try:
            call(*(_longer(one, more) for one in inputs))
        except RuntimeError:
            break  # a model of one batch size: it never meets another
        tried += 1
    return tried


def _longer(tensor: Any, rows: int) -> Any:
    import torch

    return torch.cat([tensor, tensor[:1].expand(rows, *tensor.shape[1:])]) if tensor.dim() else tensor
