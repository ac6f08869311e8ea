"""Measured ceilings of this host.

- ``environment``: identity (part of every key) and conditions of the moment
- ``procfs``: parsers of /proc and /sys
- ``gate``: samples to ceilings; spread and contention refuse, after three attempts
- ``matmul``: ``matmul`` by dtype (FLOP/s)
- ``bandwidth``: ``dram``, ``dram_copy``, ``cache``, ``cache_copy`` (B/s) by chunk quantiles
- ``caches``: cache sizes by the knees of a bandwidth sweep, and as the system reports them
- ``dispatch``: ``dispatch``, ``module_call`` (s)
- ``paging``: ``fault`` (s), ``allocation_faults`` and ``allocation_faults_kept`` (faults a 64 MiB block)
- ``spawn``: ``spawn`` (s)
- ``gpu``: ``device_matmul``, ``device_memory``, ``device_launch`` where there is an accelerator
- ``runner``: the process in which one probe or one target's calibration runs
- ``measuring``: :func:`measure`, which starts these processes
- ``cached``: machines on disk by identity
- ``words``, ``roofline``: a machine as text and as an SVG
"""

from ironlaw.machine.measuring import measure

__all__ = ["measure"]
