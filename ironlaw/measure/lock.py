"""One machine-wide lock over measuring and compiling, so that two runs do not spoil each other.

An advisory file lock of this user in the system's temporary folder: it is released by the system when its
holder dies, so a killed run never leaves it behind. A holder lets go between rounds; two runs take turns.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def lock_path() -> Path:
    return Path(tempfile.gettempdir()) / f"ironlaw-{os.getuid()}.lock"


@contextmanager
def machine_lock(waiting: Callable[[str], None] | None = None) -> Iterator[float]:
    """Hold the lock for the block, which gets the seconds waited; ``waiting`` is told when another run holds it."""
    start = time.monotonic()
    handle = os.open(lock_path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting("another ironlaw run is measuring on this machine: waiting for its turn to end")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield time.monotonic() - start
    finally:
        os.close(handle)
