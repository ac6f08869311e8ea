"""The process that loads one artefact and measures it; it knows no lever.

``python -m ironlaw.worker`` reads one JSON request a line on standard input and answers one JSON
line on a private copy of standard output; what runtimes print goes to standard error. It is
started fresh for every launch, with its environment and affinity already set, since processes of
the same program differ, and it dies with its parent. Arrays travel through a file in shared
memory. Nothing is timed but ``session.call``: inputs are native before, outputs are dropped after.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import os
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.contracts import Session
from ironlaw.records import Artefact, from_data, to_data
from ironlaw.registry import target

WARM_WINDOW_S = 0.08
WARM_TOLERANCE = 0.03
MAX_CALLS_PER_BLOCK = 20_000
SPIN_NS = 200_000
Answer = dict[str, Any]
GIVE_UP = 3.0
"""A server that is overloaded stops after so many times the length of its block."""


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent's thread ends; elsewhere end of input does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


def example_arrays(artefact: Artefact) -> list[np.ndarray]:
    """The artefact's own example at its own batch; zeros for an input that its graph does not read."""
    with np.load(Path(artefact.folder) / artefact.example, allow_pickle=False) as stored:
        return [stored[s.name] if s.name in stored else np.zeros(s.shape, s.dtype) for s in artefact.inputs]


def timed_block(call: Callable[[], object], seconds: float, min_calls: int, max_calls: int) -> list[int]:
    """Nanoseconds of each call, for about ``seconds`` and at least ``min_calls`` calls."""
    clock = time.perf_counter_ns
    samples: list[int] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        end = clock() + int(seconds * 1e9)
        while len(samples) < min_calls or (clock() < end and len(samples) < max_calls):
            start = clock()
            call()
            samples.append(clock() - start)
    finally:
        if collecting:
            gc.enable()
    return samples


def arrival_times(seconds: float, rate_per_s: float, seed: int) -> list[int]:
    """Nanoseconds at which requests arrive (a Poisson process over ``seconds``); at least one."""
    random = np.random.default_rng(seed)
    count = max(1, int(random.poisson(rate_per_s * seconds)))
    return [int(t) for t in np.sort(random.uniform(0.0, seconds * 1e9, count))]


def served(
    call: Callable[[], object], times_ns: list[int], batch: int, give_up_s: float
) -> tuple[list[int], list[int]]:
    """Requests served in order of arrival, up to ``batch`` a call: (ns from arrival to answer, ns of each call).

    The schedule never waits for the server, so that a slow answer delays those behind it as it would in life. Who
    still waits after ``give_up_s`` counts with the time waited so far, which is less than the truth.
    """
    clock = time.perf_counter_ns
    answers: list[int] = []
    services: list[int] = []
    start, following = clock(), 0
    while following < len(times_ns):
        _wait_until(start + times_ns[following])
        begin = clock()
        if begin - start > give_up_s * 1e9 and services:
            return answers + [max(0, begin - start - t) for t in times_ns[following:]], services
        taken = [t for t in times_ns[following : following + batch] if start + t <= begin]
        call()
        end = clock()
        answers += [end - start - t for t in taken]
        services.append(end - begin)
        following += len(taken)
    return answers, services


def _wait_until(due_ns: int) -> None:
    """Sleep, then spin for the last stretch, since a sleep ends late."""
    while (left := due_ns - time.perf_counter_ns()) > 0:
        if left > 2 * SPIN_NS:
            time.sleep((left - SPIN_NS) / 1e9)


def warm_up(call: Callable[[], object], limit_s: float) -> tuple[int, float, bool]:
    """Run until three windows in a row agree within the tolerance: (calls, seconds of one, whether it converged)."""
    calls, medians = 0, list[float]()
    end = time.perf_counter() + limit_s
    while not medians or time.perf_counter() < end:
        block = timed_block(call, WARM_WINDOW_S, 1, 1000)
        calls += len(block)
        medians.append(statistics.median(block) / 1e9)
        if len(medians) >= 3 and max(medians[-3:]) <= min(medians[-3:]) * (1 + WARM_TOLERANCE):
            return calls, medians[-1], True
    return calls, medians[-1], False


class Worker:
    """State of one worker: a loaded session and its native example."""

    def __init__(self) -> None:
        self.artefact: Artefact | None = None
        self.session: Session | None = None
        self.native: Any = None

    def ready(self, name: str) -> dict[str, Any]:
        """Import the runtime, so that several workers can do it side by side before any of them is timed."""
        for need in target(name).needs:
            what, _, package = need.partition(":")
            if what == "package":
                importlib.import_module(package)
        return {}

    def load(self, artefact: dict[str, Any]) -> dict[str, Any]:
        self.artefact = from_data(Artefact, artefact)
        start = time.perf_counter()
        self.session = target(self.artefact.target).load(self.artefact)
        load_s = time.perf_counter() - start
        self.native = self.session.prepare(example_arrays(self.artefact))
        start = time.perf_counter()
        outputs = self.session.fetch(self.session.call(self.native))
        first_s = time.perf_counter() - start
        finite = all(np.isfinite(o).all() for o in outputs if np.issubdtype(o.dtype, np.floating))
        return {"load_s": load_s, "first_s": first_s, "finite": bool(finite)}

    def warm(self, limit_s: float) -> dict[str, Any]:
        calls, call_s, converged = warm_up(self._call, limit_s)
        return {"calls": calls, "call_s": call_s, "converged": converged}

    def block(self, seconds: float, min_calls: int) -> dict[str, Any]:
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        samples = timed_block(self._call, seconds, min_calls, MAX_CALLS_PER_BLOCK)
        return {"ns": samples, "wall_s": time.perf_counter() - start, **used_since(before)}

    def arrivals(self, seconds: float, rate_per_s: float, seed: int) -> dict[str, Any]:
        """Serve requests that arrive at random: ``ns`` from each arrival to its answer, ``service_ns`` of each call."""
        assert self.artefact is not None
        before = resource.getrusage(resource.RUSAGE_SELF)
        times = arrival_times(seconds, rate_per_s, seed)
        answers, services = served(self._call, times, self.artefact.execution.batch, GIVE_UP * seconds)
        return {"ns": answers, "service_ns": services, "wall_s": sum(services) / 1e9, **used_since(before)}

    def predict(self, path: str, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Inputs lie in ``path`` at their offsets; outputs are written to ``path + ".out"``."""
        assert self.session is not None
        arrays = read_arrays(path, inputs)
        outputs = self.session.fetch(self.session.call(self.session.prepare(arrays)))
        return {"outputs": write_arrays(path + ".out", outputs)}

    def certify(self) -> dict[str, Any]:
        assert self.session is not None
        return {"certificate": to_data(self.session.certify())}

    def profile(self, calls: int) -> dict[str, Any]:
        assert self.session is not None
        return {"ops": to_data(self.session.profile(self.native, calls))}

    def inspect(self) -> dict[str, Any]:
        """What the session sees inside its loaded model; None where the runtime has no way to look."""
        look = getattr(self.session, "inspect", None)
        return {"inspection": None if look is None else to_data(look(self.native))}

    def _call(self) -> object:
        assert self.session is not None
        return self.session.call(self.native)


def used_since(before: resource.struct_rusage) -> dict[str, Any]:
    """Page faults, CPU seconds and peak memory of a block."""
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "faults": after.ru_minflt - before.ru_minflt,
        "user_s": after.ru_utime - before.ru_utime,
        "system_s": after.ru_stime - before.ru_stime,
        "peak_memory_bytes": peak_memory_bytes(),
    }


def peak_memory_bytes() -> int:
    """Largest resident set so far. ``ru_maxrss`` survives exec on Linux, so VmHWM is read where it exists."""
    try:
        text = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def write_arrays(path: str, arrays: list[np.ndarray]) -> list[dict[str, Any]]:
    """Write arrays one after the other (64-byte aligned); returns where each lies."""
    described: list[dict[str, Any]] = []
    with open(path, "wb") as file:
        for array in arrays:
            array = np.ascontiguousarray(array)
            file.write(b"\0" * (-file.tell() % 64))
            described.append({"offset": file.tell(), "shape": list(array.shape), "dtype": array.dtype.str})
            file.write(array.tobytes())
    return described


def read_arrays(path: str, described: list[dict[str, Any]]) -> list[np.ndarray]:
    """Copies of the arrays that :func:`write_arrays` wrote."""
    size = os.path.getsize(path)
    if size == 0:
        return [np.empty(d["shape"], np.dtype(d["dtype"])) for d in described]
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        return [
            np.ndarray(d["shape"], np.dtype(d["dtype"]), buffer=memory, offset=d["offset"]).copy() for d in described
        ]


def serve(worker: object, requests: Any, answers: Any) -> None:
    """Answer requests until the input ends. An exception is an answer, since the next request may work."""
    for line in requests:
        request = json.loads(line)
        action = request.pop("do")
        if action == "exit":
            return
        try:
            answer = {"ok": True, **getattr(worker, action)(**request)}
        except MemoryError as error:
            answer = {"ok": False, "kind": "MemoryError", "error": str(error) or "out of memory"}
        except Exception as error:  # noqa: BLE001 - the parent turns it into the outcome of this trial
            message = " ".join(str(error).split()) or type(error).__name__
            answer = {"ok": False, "kind": type(error).__name__, "error": message[:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(Worker(), sys.stdin, answers)


if __name__ == "__main__":
    main()
