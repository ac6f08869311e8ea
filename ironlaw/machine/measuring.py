"""Measures this host: each probe and each target's calibration in a fresh process, one after the other.

Never two at once, since they would measure each other. Processes start with their threads, affinity and
allocator variables, and without those of the user: a ceiling belongs to the machine, not to the shell
that asked. What fails, hangs or is refused becomes a note; a machine with holes is still a machine,
and a hole is never filled with a default.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ironlaw.machine import environment
from ironlaw.machine.gate import Findings
from ironlaw.records import Ceiling, Environment, Identity, KernelRate, Machine, UserError, from_json

BUDGET_S = {False: 60.0, True: 25.0}
"""Seconds in all on two cores, by ``quick``."""
PROBE_S = {
    # seconds by probe: full, quick
    "matmul": (3.0, 0.6),
    "bandwidth": (1.2, 0.4),
    "caches": (1.5, 0.3),
    "dispatch": (0.8, 0.3),
    "fault": (0.5, 0.2),
    "allocation": (0.5, 0.2),
    "spawn": (0.6, 0.2),
    "gpu": (6.0, 3.0),
}
SCALING = ("matmul", "bandwidth")
"""Probes that run at every thread count; the others at one."""
START_S = 2.5
"""What a process that imports a framework takes to start, for planning only."""
CALIBRATION_S = {False: (1.0, 4.0), True: (0.4, 1.0)}
"""Least and most seconds of one target's calibration, by ``quick``."""
KILL_AFTER_S = 90.0
DROPPED = (*environment.VARIABLE_PREFIXES, "ATEN_CPU_CAPABILITY", "GLIBC_TUNABLES", "NUMEXPR_NUM_THREADS")
QUIET = {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One process: a probe or a target's calibration."""

    probe: str = ""
    target: str = ""
    threads: int = 1
    seconds: float = 1.0
    keep_memory: bool = False

    @property
    def label(self) -> str:
        what = f"calibration of {self.target}" if self.target else self.probe
        kept = ", memory kept" if self.keep_memory else ""
        return f"{what}, {self.threads} thread{'s' if self.threads > 1 else ''}{kept}"


def measure(
    *,
    threads: tuple[int, ...] | None = None,
    quick: bool = False,
    progress: Callable[[str], None] | None = None,
    targets: Sequence[str] = (),
) -> Machine:
    """The ceilings of this host: under 60 s on two cores, ``quick`` under 25 s.

    Args:
        threads: thread counts; default 1, 2, 4, ... and all usable cores.
        quick: less time for each probe, fewer attempts on a busy machine.
        progress: gets a line for each process.
        targets: runtimes whose kernels are calibrated; one that cannot is noted.

    Raises:
        UserError: a thread count that this process cannot use.
    """
    talk, now = progress or _silent, environment.environment()
    counts = _checked(threads, now.identity.cores) if threads else thread_counts(now.identity.cores)
    deadline = time.monotonic() + BUDGET_S[quick]
    slack = 0.1 * BUDGET_S[quick]
    found: list[Findings] = []
    for job in probe_jobs(counts, now.identity, quick=quick):
        start = time.monotonic()
        found.append(run(job, patience_s=job.seconds + slack, talk=talk))
        slack = max(0.0, slack - max(0.0, time.monotonic() - start - job.seconds - START_S))
    found += _calibrations(targets, counts, deadline, quick=quick, talk=talk)
    return assembled(now, found, quick=quick)


def calibrate(
    targets: Sequence[str],
    *,
    threads: tuple[int, ...],
    quick: bool = False,
    progress: Callable[[str], None] | None = None,
) -> tuple[tuple[KernelRate, ...], tuple[str, ...]]:
    """Kernel rates of targets alone, and notes: for a runtime that was installed after the machine was measured."""
    deadline = time.monotonic() + BUDGET_S[quick] / 2.0
    found = _calibrations(targets, threads, deadline, quick=quick, talk=progress or _silent)
    return tuple(k for f in found for k in f.kernels), tuple(n for f in found for n in f.notes)


def thread_counts(cores: int) -> tuple[int, ...]:
    """1, 2, 4, ... and all of them."""
    return tuple(sorted({min(1 << n, cores) for n in range(cores.bit_length() + 1)}))


def probe_jobs(counts: Sequence[int], identity: Identity, *, quick: bool) -> list[Job]:
    """The probes in order. With more than two thread counts each gets its share of the time of two."""
    jobs = []
    for name, (full, short) in PROBE_S.items():
        if name == "gpu" and not identity.accelerators:
            continue
        seconds = short if quick else full
        if name in SCALING:
            share = seconds * min(1.0, 2.0 / len(counts))
            jobs += [Job(probe=name, threads=n, seconds=share) for n in counts]
        else:
            jobs.append(Job(probe=name, seconds=seconds))
        if name == "allocation":
            jobs.append(Job(probe=name, seconds=seconds, keep_memory=True))
    return jobs


def run(job: Job, *, patience_s: float = 10.0, talk: Callable[[str], None] | None = None) -> Findings:
    """Runs one job in a fresh process; what goes wrong is a note."""
    (talk or _silent)(job.label)
    cpus = environment.spread_cpus(job.threads)
    command = [sys.executable, "-m", "ironlaw.machine.runner", "--threads", str(job.threads)]
    command += ["--seconds", f"{job.seconds:.3f}", "--patience", f"{patience_s:.3f}"]
    command += ["--cpus", ",".join(str(cpu) for cpu in cpus)] if hasattr(os, "sched_setaffinity") else []
    command += ["--target", job.target] if job.target else ["--probe", job.probe]
    try:
        done = subprocess.run(
            command, env=variables(job), capture_output=True, text=True, timeout=KILL_AFTER_S + patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Findings(notes=(f"{job.label}: no answer within {KILL_AFTER_S + patience_s:.0f} s",))
    if done.returncode != 0:
        return Findings(notes=(f"{job.label}: {_last_words(done)}",))
    try:
        return from_json(Findings, done.stdout)
    except ValueError as error:
        return Findings(notes=(f"{job.label}: the answer cannot be read ({error})",))


def variables(job: Job) -> dict[str, str]:
    """The environment of a probe: the user's, without thread and allocator variables, with the job's own."""
    from ironlaw.machine.paging import KEEPING

    kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
    count = str(job.threads)
    pools = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
    return {**kept, **QUIET, **pools, **(KEEPING if job.keep_memory else {})}


def assembled(now: Environment, found: Iterable[Findings], *, quick: bool) -> Machine:
    """One machine of what the processes answered."""
    found = tuple(found)
    return Machine(
        environment=now,
        ceilings=tuple(c for f in found for c in f.ceilings),
        caches=tuple(c for f in found for c in f.caches),
        kernels=tuple(k for f in found for k in f.kernels),
        notes=tuple(n for f in found for n in f.notes),
        quick=quick,
    )


def unsettled(machine: Machine) -> tuple[Ceiling, ...]:
    """Ceilings that were refused."""
    return tuple(c for c in machine.ceilings if not c.valid)


def _calibrations(
    targets: Sequence[str], counts: Sequence[int], deadline: float, *, quick: bool, talk: Callable[[str], None]
) -> list[Findings]:
    """Each target at one thread and at all, in what is left of the time; the ones that fail leave a note."""
    jobs = [(target, n) for target in targets for n in sorted({min(counts), max(counts)})]
    least, most = CALIBRATION_S[quick]
    found = []
    for done, (target, n) in enumerate(jobs):
        left = (deadline - time.monotonic()) / (len(jobs) - done) - START_S
        found.append(run(Job(target=target, threads=n, seconds=min(most, max(least, left))), talk=talk))
    return found


def _checked(threads: Sequence[int], cores: int) -> tuple[int, ...]:
    wrong = [n for n in threads if not 1 <= n <= cores]
    if wrong:
        raise UserError(
            f"threads {', '.join(map(str, wrong))}", f"this process may use 1 to {cores}", f"Give counts up to {cores}."
        )
    return tuple(sorted(set(threads)))


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"died of signal {-done.returncode}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {done.returncode}"


def _silent(_: str) -> None:
    return None
