"""The clock of other people's CPU time, against recorded texts and a neighbour that we start."""

import os
import subprocess
import sys
import time

import pytest

from ironlaw.measure import foreign
from ironlaw.measure.foreign import ForeignClock, busy_seconds

BEFORE = """cpu  300 0 100 5000 10 5 5 20 7 0
cpu0 100 1 50 2500 9 2 3 10 7 0
cpu1 200 0 50 2500 1 3 2 10 0 0
intr 12345 0 0
"""


def test_busy_leaves_out_idle_iowait_and_guest_and_keeps_steal():
    assert busy_seconds(BEFORE, [0], 0.01) == pytest.approx((100 + 1 + 50 + 2 + 3 + 10) * 0.01)
    assert busy_seconds(BEFORE, [0, 1], 0.01) == pytest.approx(1.66 + 2.65)
    assert busy_seconds(BEFORE, [7], 0.01) == 0.0


def test_busy_does_not_mistake_cpu1_for_cpu10():
    text = "cpu 9 0 0 0 0 0 0 0\ncpu1 1 0 0 0 0 0 0 0\ncpu10 8 0 0 0 0 0 0 0\n"
    assert busy_seconds(text, [1], 1.0) == 1.0


def test_fraction_is_busy_less_own_over_capacity(tmp_path, monkeypatch):
    stat, now, own = tmp_path / "stat", [100.0], {11: 5.0, 12: 1.0}
    monkeypatch.setattr(foreign.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(foreign, "_process_cpu_s", own.__getitem__)
    monkeypatch.setattr(foreign, "_tick_s", lambda: 0.01)
    stat.write_text(BEFORE)
    clock = ForeignClock([11, 12], cpus=[0, 1], stat=stat)
    mark = clock.mark()
    # 2 s later on two processors: cpu0 1.5 s busy and 0.1 s stolen, cpu1 0.4 s busy; ours took 1.2 s.
    stat.write_text(
        BEFORE.replace("cpu0 100 1 50 2500 9 2 3 10", "cpu0 250 1 50 2500 9 2 3 20").replace(" 200 ", " 240 ")
    )
    now[0], own[11], own[12] = 102.0, 5.9, 1.3
    assert clock.since(mark) == pytest.approx((1.6 + 0.4 - 1.2) / 4.0)
    assert clock.resolution(mark) == pytest.approx(0.005)


def test_ended_process_keeps_its_last_reading(tmp_path, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    clock = ForeignClock([child.pid])
    mark = clock.mark()
    child.communicate(b"")
    assert clock.mark().own_s >= mark.own_s
    assert 0.0 <= clock.since(mark) <= 1.0


def test_own_work_is_not_foreign_and_a_neighbour_is():
    """A child that spins is foreign to a clock of this process alone, and not to one that owns it too."""
    code = "import time\nend = time.monotonic() + 1.0\nwhile time.monotonic() < end: pass"
    child = subprocess.Popen([sys.executable, "-c", code])
    cpus = len(os.sched_getaffinity(0))
    alone, both = ForeignClock([os.getpid()]), ForeignClock([os.getpid(), child.pid])
    time.sleep(0.2)
    marks = alone.mark(), both.mark()
    spent = time.clock_gettime((~child.pid << 3) | 2)
    start = time.perf_counter()
    time.sleep(0.5)
    seen, apart = alone.since(marks[0]), both.since(marks[1])
    share = (time.clock_gettime((~child.pid << 3) | 2) - spent) / (time.perf_counter() - start) / cpus
    child.wait()
    assert seen - apart == pytest.approx(share, abs=0.05), "owning the child takes exactly its time away"
    assert seen >= share - 0.06


def test_finished_children_of_this_process_are_own():
    clock = ForeignClock()
    mark = clock.mark()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    grown = clock.mark().own_s[0] - mark.own_s[0]
    assert grown > 0.02


def test_psutil_answers_where_there_is_no_proc_stat(tmp_path):
    psutil = pytest.importorskip("psutil")
    clock = ForeignClock(stat=tmp_path / "none")
    expected = sum(t.user + t.system for t in psutil.cpu_times(percpu=True))
    assert clock.mark().busy_s == pytest.approx(expected, rel=0.2)
    assert foreign._psutil_process(os.getpid()) == pytest.approx(time.process_time(), abs=0.1)
    with pytest.raises(ProcessLookupError):
        foreign._psutil_process(2**22 + 1)
