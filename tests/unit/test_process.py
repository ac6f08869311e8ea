"""A child that crashes, hangs, grows or refuses is an outcome with a reason, and never outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ironlaw.measure.process import Child, WorkerFailure
from ironlaw.records import Outcome

CHILD = """
import json, os, signal, sys, time
for line in sys.stdin:
    request = json.loads(line)
    do = request.pop("do")
    if do == "segfault":
        print("about to fail badly", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if do == "hang":
        time.sleep(60)
    if do == "grow":
        block = b"x" * (400 << 20)
        time.sleep(20)
    if do == "leave":
        sys.exit("missing library libsomething.so")
    if do == "refuse":
        print(json.dumps({"ok": False, "kind": "ValueError", "error": "no kernel for int3"}), flush=True)
        continue
    if do == "memory":
        print(json.dumps({"ok": False, "kind": "MemoryError", "error": "too big"}), flush=True)
        continue
    print(json.dumps({"ok": True, "pid": os.getpid(), "seen": os.environ.get("SEEN"), **request}), flush=True)
"""


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "odd_child.py").write_text(CHILD)
    return {"PYTHONPATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("action", "outcome", "words"),
    [
        ("segfault", Outcome.CRASHED, "SIGSEGV: about to fail badly"),
        ("hang", Outcome.HUNG, "no answer within 1 s"),
        ("leave", Outcome.CRASHED, "libsomething"),
        ("refuse", Outcome.BUILD_FAILED, "ValueError: no kernel for int3"),
        ("memory", Outcome.OUT_OF_MEMORY, "too big"),
    ],
)
def test_failures_are_outcomes(here: dict[str, str], action: str, outcome: Outcome, words: str) -> None:
    with Child("odd_child", variables=here) as child, pytest.raises(WorkerFailure) as caught:
        child.ask(action, timeout_s=1)
    assert caught.value.outcome == outcome
    assert words in caught.value.reason


def test_memory_limit(here: dict[str, str]) -> None:
    with Child("odd_child", variables=here, memory_limit_bytes=200 << 20) as child:
        with pytest.raises(WorkerFailure, match=r"the limit is 0\.2 GiB") as caught:
            child.ask("grow", timeout_s=15)
        assert caught.value.outcome == Outcome.OUT_OF_MEMORY
        assert not psutil.pid_exists(child.pid) or psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE


def test_kernel_kill_reads_as_out_of_memory(here: dict[str, str]) -> None:
    with Child("odd_child", variables=here) as child:
        child.ask("hello", timeout_s=10)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(WorkerFailure) as caught:
            child.ask("hello", timeout_s=10)
    assert caught.value.outcome == Outcome.OUT_OF_MEMORY


def test_answers_environment_and_pause(here: dict[str, str]) -> None:
    with Child("odd_child", variables={**here, "SEEN": "yes"}, cpus=[min(os.sched_getaffinity(0))]) as child:
        assert child.ask("hello", timeout_s=10, more=3) == {"pid": child.pid, "seen": "yes", "more": 3}
        child.pause()
        deadline = time.monotonic() + 5
        while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
            time.sleep(0.01)
        assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
        assert psutil.Process(child.pid).cpu_affinity() == [min(os.sched_getaffinity(0))]
        assert child.ask("hello", timeout_s=10)["pid"] == child.pid


def test_worker_dies_with_its_parent() -> None:
    """kill -9 of the parent, its worker stopped at the time: the system ends the worker all the same."""
    code = (
        "import os, signal, sys\n"
        "from ironlaw.measure.process import Child\n"
        "child = Child('ironlaw.worker')\n"
        "try: child.ask('certify', timeout_s=60)\n"
        "except Exception: pass\n"
        "child.pause(); print(child.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)


def test_lock_is_exclusive_and_released_by_death(tmp_path: Path) -> None:
    code = (
        "import sys, time; from ironlaw.measure.lock import machine_lock\n"
        "with machine_lock(): print('held', flush=True); time.sleep(60)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    probe = "from ironlaw.measure.lock import machine_lock\nwith machine_lock(print): print('mine')\n"
    waiter = subprocess.Popen([sys.executable, "-c", probe], stdout=subprocess.PIPE, text=True, env=environment)
    time.sleep(1.0)
    assert waiter.poll() is None
    holder.kill()
    out, _ = waiter.communicate(timeout=30)
    assert out.splitlines()[-1] == "mine"
    assert "waiting" in out
    holder.wait()
