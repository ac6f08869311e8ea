"""Is a known spin of 50 us measured right, and what do the commands, the import and the observer cost.

The spin goes through the protocol of a real worker process (its pipe, its timed block), so that anything which
the ruler adds to a call would show. Commands are timed as people wait for them: a fresh process from start to
end, with the bare interpreter beside them. The observer is the profiling pass of a diagnosis.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import common, rounds
from benchmarks.arithmetic import median_interval
from benchmarks.spin import SPIN_S
from ironlaw.diagnose.joining import CALL, OBSERVER
from ironlaw.machine.environment import spread_cpus
from ironlaw.measure.process import Child
from ironlaw.measure.statistics import launch_interval
from ironlaw.records import Goal

PROCESSES = 15
LAUNCHES = 9
BLOCK_S = 0.3
HELP_S, IMPORT_S, SPIN_ERROR = 0.3, 0.2, 0.02


def run(options: common.Options) -> common.Report:
    report = options.report("overhead")
    if options.wants("spin"):
        _spin(report, 3 if options.quick else LAUNCHES)
    if options.wants("commands"):
        _commands(report, 5 if options.quick else PROCESSES)
    if options.wants("observer"):
        _observer(report, options)
    if options.quick:
        report.left_out.append(f"launches: 3 of {LAUNCHES} of the spin, 5 of {PROCESSES} processes of each command")
    return report


def _spin(report: common.Report, launches: int) -> None:
    """Blocks of several launches; the ratio is measured over known."""
    logs = []
    for _ in range(launches):
        cpus = spread_cpus(1)
        with Child("benchmarks.spin", variables={"PYTHONPATH": str(common.ROOT)}, cpus=cpus) as child:
            child.ask("load", timeout_s=30, artefact={"spin_ns": round(SPIN_S * 1e9)})
            child.ask("warm", timeout_s=30, limit_s=1.0)
            samples = child.ask("block", timeout_s=30, seconds=BLOCK_S, min_calls=100)["ns"]
        logs.append([math.log(sample * 1e-9 / SPIN_S) for sample in samples])
    low, middle, high = (math.exp(x) for x in launch_interval(logs))
    report.arms.append({"what": "spin of 50 us", "median_s": SPIN_S * middle, "launches": launches})
    furthest = max(abs(low - 1.0), abs(high - 1.0))
    nearest = 0.0 if low <= 1.0 <= high else min(abs(low - 1.0), abs(high - 1.0))
    report.goal("spin of 50 us: relative error", abs(middle - 1.0), nearest, furthest, at_most=SPIN_ERROR)


def _commands(report: common.Report, processes: int) -> None:
    script = Path(sys.executable).with_name("ironlaw")
    front = [str(script)] if script.exists() else [sys.executable, "-c", "from ironlaw.cli import main; main()"]
    commands = {
        "ironlaw --help": ([*front, "--help"], HELP_S),
        "import ironlaw": ([sys.executable, "-c", "import ironlaw"], IMPORT_S),
        "bare interpreter": ([sys.executable, "-c", "pass"], None),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(processes + 1):
        for name, (command, _) in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if turn:  # the first reads files from disk
                times[name].append(time.perf_counter() - start)
    for name, (_, limit) in commands.items():
        low, middle, high = median_interval(times[name])
        report.arms.append({"what": name, "median_s": middle, "low_s": low, "high_s": high, "launches": processes})
        if limit is not None:
            report.goal(f"{name}: seconds of a fresh process", middle, low, high, at_most=limit)


def _observer(report: common.Report, options: common.Options) -> None:
    """What the profiler adds to a call of digits: taken off the operators' times, reported beside them."""
    with rounds.session("demo:digits", Goal(), options.home / "overhead", options.talk, ceilings=False) as made:
        marks = {op.name: op.time_s for op in made.bench.profile(made.bench.baseline)}
    call, added = marks.get(CALL), marks.get(OBSERVER)
    if not call or added is None:
        report.notes.append("the profile of digits names no observer cost")
        return
    report.arms.append({"what": "a call of digits, unobserved", "median_s": call, "launches": 1})
    report.arms.append({"what": "what the profiler adds to it", "median_s": added, "launches": 1})
    factor = (call + added) / call
    report.notes.append(f"observer: a profiled call takes {factor:.2f} times as long; never in a timed pass")


if __name__ == "__main__":
    common.main("overhead", run)
