"""What memory costs before it is used: page faults, and whether the allocator keeps big blocks.

An allocator that gives a freed block back to the system makes the next use of it fault in every page
again: an eager network at batch 32 was seen to spend two thirds of its time there. The first probe
prices a minor fault; the second counts the faults of a 64 MiB block that is allocated, filled and
freed again and again, as this process's allocator stands (the runner starts it with and without the
variables below).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import time
from typing import ClassVar

from ironlaw.machine.gate import COUNTED, Found, ceiling

REGION_BYTES = 32 << 20
BLOCK_BYTES = 64 << 20
WARM = 12
"""Allocations before counting: an aligned block is seen to move through fresh heap for up to ten rounds."""
KEEPING = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
"""glibc: never serve a block by its own mapping, never trim the heap, grow it in large steps (mallopt(3))."""


class FaultProbe:
    """``fault``: seconds a minor fault, with its share of mapping and unmapping, on pages of the base size.

    Huge pages are switched off for the region, as heaps have them off; the touch itself, measured by a second
    pass, is subtracted.
    """

    name: ClassVar[str] = "fault"

    def measure(self, threads: int, seconds: float) -> Found:
        samples: list[float] = []
        end = time.perf_counter() + seconds
        while len(samples) < 5 or time.perf_counter() < end:
            samples.append(_fault_s())
        page = mmap.PAGESIZE
        return (ceiling("fault", "s", samples, threads=1, note=f"pages of {page} bytes, mapped, touched, unmapped"),)


class AllocationProbe:
    """``allocation_faults``: minor faults of one 64 MiB block allocated, filled and freed, after the first few."""

    name: ClassVar[str] = "allocation"

    def measure(self, threads: int, seconds: float) -> Found:
        keeping = all(os.environ.get(name) == value for name, value in KEEPING.items())
        samples = block_faults(repeats=8 if seconds < 0.5 else 16)
        settings = ", ".join(f"{k}={v}" for k, v in KEEPING.items()) if keeping else "default settings"
        name = "allocation_faults_kept" if keeping else "allocation_faults"
        return (ceiling(name, COUNTED, samples, note=f"{BLOCK_BYTES >> 20} MiB; {settings}"),)


def block_faults(repeats: int, size: int = BLOCK_BYTES) -> list[float]:
    """Minor faults of each repetition of allocate, fill, free, through the C allocator of this process."""
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    samples = []
    for n in range(repeats + WARM):
        before = _minor_faults()
        block = ctypes.c_void_p()
        if libc.posix_memalign(ctypes.byref(block), 64, size):
            raise MemoryError(f"{size} bytes were refused")
        libc.memset(block, 1, size)
        libc.free(block)
        if n >= WARM:
            samples.append(float(_minor_faults() - before))
    return samples


def _fault_s() -> float:
    import numpy as np

    start, before = time.perf_counter(), _minor_faults()
    region = mmap.mmap(-1, REGION_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        region.madvise(mmap.MADV_NOHUGEPAGE)
    view = np.frombuffer(region, np.uint8)[:: mmap.PAGESIZE]
    view[:] = 1
    touched, faults = time.perf_counter(), _minor_faults() - before
    view[:] = 2
    again = time.perf_counter()
    del view
    region.close()
    whole = time.perf_counter() - start
    return (whole - 2.0 * (again - touched)) / max(faults, 1)


def _minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
