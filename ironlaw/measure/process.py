"""A child process that answers JSON lines: started clean, watched, stopped while idle, killed when late.

A crash, a hang or too much memory is an outcome of the trial, not of the run, so every failure is a
:class:`WorkerFailure` with its :class:`Outcome`. The idle one is stopped by signal because runtimes
keep spinning after a call and would disturb their partner.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import psutil

from ironlaw.records import Outcome

POLL_S = 0.2
QUIET = {"PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


class WorkerFailure(Exception):
    """The child crashed, hung, ran out of memory or refused; ``outcome`` says which."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome, self.reason = outcome, reason


class Child:
    """``python -m MODULE`` behind a pipe. Use as a context manager: it never outlives the block."""

    def __init__(
        self,
        module: str = "ironlaw.worker",
        *,
        variables: Mapping[str, str] | None = None,
        cpus: Sequence[int] = (),
        memory_limit_bytes: int | None = None,
    ) -> None:
        self._limit = memory_limit_bytes
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._cpus = tuple(cpus)
        environment = {**os.environ, **QUIET, **(variables or {})}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
        )
        if self._cpus and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._process.pid, self._cpus)
        self._prefer_as_victim()
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._buffer = b""
        self._stopped = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, action: str, *, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for its answer; raises WorkerFailure."""
        self.send(action, **arguments)
        return self.receive(timeout_s)

    def send(self, action: str, **arguments: Any) -> None:
        self.resume()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps({"do": action, **arguments}) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._dead() from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                self.kill()
                raise WorkerFailure(Outcome.HUNG, f"no answer within {timeout_s:.0f} s")
            if self._selector.select(min(left, POLL_S)):
                assert self._process.stdout is not None
                data = os.read(self._process.stdout.fileno(), 1 << 20)
                if not data:
                    raise self._dead()
                self._buffer += data
            self._check_memory()
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            kind = answer["kind"]
            outcome = Outcome.OUT_OF_MEMORY if kind == "MemoryError" else Outcome.BUILD_FAILED
            raise WorkerFailure(outcome, f"{kind}: {answer['error']}")
        return answer

    def pause(self) -> None:
        """Stop all its threads (they may spin) and its own children (they may load); the next request wakes it."""
        if not self._stopped and self._process.poll() is None:
            os.killpg(self.pid, signal.SIGSTOP)
            self._stopped = True

    def resume(self) -> None:
        if self._stopped:
            with contextlib.suppress(ProcessLookupError):  # it died while it was stopped: the next answer says so
                os.killpg(self.pid, signal.SIGCONT)
            self._stopped = False

    def kill(self) -> None:
        if self._process.poll() is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # it died with our last request unread
                    stream.close()
        self._selector.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _dead(self) -> WorkerFailure:
        code = self._process.wait()
        said = self._last_words()
        if code == -signal.SIGKILL:
            return WorkerFailure(Outcome.OUT_OF_MEMORY, "killed by the system (most likely out of memory)")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return WorkerFailure(Outcome.CRASHED, f"the process ended by {name}{': ' + said if said else ''}")

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def _check_memory(self) -> None:
        if self._limit is None:
            return
        try:
            used = psutil.Process(self.pid).memory_info().rss
        except psutil.NoSuchProcess:
            return
        if used > self._limit:
            self.kill()
            raise WorkerFailure(
                Outcome.OUT_OF_MEMORY, f"used {used / 2**30:.1f} GiB, the limit is {self._limit / 2**30:.1f} GiB"
            )

    def _prefer_as_victim(self) -> None:
        try:
            with open(f"/proc/{self.pid}/oom_score_adj", "w") as file:
                file.write("900")
        except OSError:
            pass  # not Linux, or not allowed: the system then chooses its victim itself
