"""How probes are started, what becomes of those that fail, and what is kept on disk."""

import dataclasses
import sys
import time
from types import SimpleNamespace

import pytest

from ironlaw.machine import cached, measuring, runner
from ironlaw.machine.environment import environment
from ironlaw.machine.gate import Findings, ceiling, judge
from ironlaw.machine.measuring import Job
from ironlaw.records import Cache, KernelRate, Machine, UserError, exactly, from_json, to_json


@pytest.fixture
def machine():
    return Machine(
        environment=environment(),
        ceilings=(
            ceiling("matmul", "FLOP/s", [98e9, 100e9, 102e9], dtype="fp32", threads=1),
            ceiling("dram", "B/s", [19e9, 20e9, 21e9], threads=1),
        ),
    )


def test_thread_counts_double_and_end_with_all():
    assert measuring.thread_counts(1) == (1,)
    assert measuring.thread_counts(2) == (1, 2)
    assert measuring.thread_counts(6) == (1, 2, 4, 6)
    assert measuring.thread_counts(64) == (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize(("quick", "most"), [(False, 18.0), (True, 4.0)])
def test_the_time_planned_for_probes_does_not_grow_with_cores(quick, most):
    who = environment().identity
    for cores in (1, 2, 64):
        jobs = measuring.probe_jobs(measuring.thread_counts(cores), who, quick=quick)
        assert sum(job.seconds for job in jobs) <= most
    assert "gpu" not in {job.probe for job in jobs} or who.accelerators


def test_probes_that_scale_run_at_every_count_and_allocation_twice():
    jobs = measuring.probe_jobs((1, 2), environment().identity, quick=True)
    seen = [(j.probe, j.threads, j.keep_memory) for j in jobs]
    assert {("matmul", 1, False), ("matmul", 2, False), ("bandwidth", 2, False)} <= set(seen)
    assert [s for s in seen if s[0] == "allocation"] == [("allocation", 1, False), ("allocation", 1, True)]
    assert ("dispatch", 2, False) not in seen


def test_gpu_probe_only_where_the_identity_has_one():
    who = dataclasses.replace(environment().identity, accelerators=("NVIDIA H100",))
    assert "gpu" in {job.probe for job in measuring.probe_jobs((1,), who, quick=True)}


def test_probes_do_not_see_the_users_thread_and_allocator_variables(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("KMP_AFFINITY", "none")
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("IRONLAW_TEST_KEPT", "yes")
    found = measuring.variables(Job(probe="matmul", threads=2))
    assert found["OMP_NUM_THREADS"] == "2"
    assert not {"KMP_AFFINITY", "MALLOC_TOP_PAD_", "ATEN_CPU_CAPABILITY"} & set(found)
    assert found["IRONLAW_TEST_KEPT"] == "yes"
    assert measuring.variables(Job(probe="allocation", keep_memory=True))["MALLOC_TOP_PAD_"] != "1"


def test_a_probe_answers_from_a_process_of_its_own():
    said = []
    found = measuring.run(Job(probe="spawn", seconds=0.0), talk=said.append)
    assert [c.name for c in found.ceilings] == ["spawn"]
    assert 1e-3 < found.ceilings[0].value < 10.0
    assert said == ["spawn, 1 thread"]


def test_a_target_that_cannot_is_a_note_and_not_fatal():
    found = measuring.run(Job(target="nosuch", seconds=0.1))
    assert found == Findings(notes=("calibration of nosuch, 1 thread: target 'nosuch': is not known",))


@pytest.mark.parametrize(
    ("program", "note"),
    [
        ("import os; os.kill(os.getpid(), 11)", "died of signal 11"),
        ("raise RuntimeError('no such kernel')", "RuntimeError: no such kernel"),
        ("print('not JSON')", "the answer cannot be read"),
        ("print('{\"unknown\": 1}')", "the answer cannot be read"),
        ("import time; time.sleep(60)", "no answer within"),
    ],
)
def test_what_goes_wrong_in_a_probe_is_a_note(program, note, tmp_path, monkeypatch):
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(measuring.sys, "executable", str(script))
    monkeypatch.setattr(measuring, "KILL_AFTER_S", 1.0)
    found = measuring.run(Job(probe="spawn"), patience_s=0.0)
    assert found.ceilings == ()
    assert len(found.notes) == 1
    assert note in found.notes[0]


@pytest.mark.parametrize(("foreign", "valid"), [(0.02, True), (0.4, False)])
def test_rates_taken_while_others_worked_are_not_valid(monkeypatch, foreign, valid):
    rate = KernelRate(
        target="x", kind="conv", dtype="fp32", threads=2, unit="FLOP/s", rate=exactly(1.0), call_s=1.0, shapes=1
    )
    monkeypatch.setattr("ironlaw.registry.target", lambda _: SimpleNamespace(calibrate=lambda *_: [rate]))
    clock = SimpleNamespace(mark=lambda: 0, since=lambda _: foreign, resolution=lambda _: 0.0)
    monkeypatch.setattr(runner, "ForeignClock", lambda: clock)
    found = runner.run_target("x", 2, 0.1)
    assert [k.valid for k in found.kernels] == [valid]
    assert bool(found.notes) is not valid


def test_thread_counts_beyond_the_cores_are_refused():
    with pytest.raises(UserError, match="100000"):
        measuring.measure(threads=(1, 100_000), quick=True)


def test_calibrations_run_at_one_thread_and_all_and_share_the_time(monkeypatch):
    jobs = []
    monkeypatch.setattr(measuring, "run", lambda job, **_: jobs.append(job) or Findings())
    measuring.calibrate(["a", "b"], threads=(1, 2, 4), quick=True)
    assert [(j.target, j.threads) for j in jobs] == [("a", 1), ("a", 4), ("b", 1), ("b", 4)]
    least, most = measuring.CALIBRATION_S[True]
    assert all(least <= j.seconds <= most for j in jobs)


def test_saved_and_loaded_is_equal(machine, tmp_path):
    digest, folder = machine.environment.identity.digest, tmp_path / "deep" / "machines"
    assert cached.load(folder, digest) is None
    assert cached.save(folder, machine) == machine
    assert cached.load(folder, digest) == machine
    assert cached.load(folder, "0" * 64) is None
    assert list(folder.iterdir()) == [cached.path_of(folder, digest)], "no temporary file stays"


@pytest.mark.parametrize("damage", [lambda t: t[: len(t) // 2], lambda t: "[]", lambda t: "{}", lambda t: "\0" * 9])
def test_a_corrupt_file_is_no_machine_and_says_so(machine, tmp_path, damage):
    digest = machine.environment.identity.digest
    cached.save(tmp_path, machine)
    path = cached.path_of(tmp_path, digest)
    path.write_text(damage(path.read_text()))
    said = []
    assert cached.load(tmp_path, digest, talk=said.append) is None
    assert len(said) == 1
    assert str(path) in said[0]
    cached.save(tmp_path, machine)
    assert cached.load(tmp_path, digest) == machine


def test_a_file_of_another_identity_is_refused(machine, tmp_path):
    digest = machine.environment.identity.digest
    cached.save(tmp_path, machine)
    path = cached.path_of(tmp_path, digest)
    path.write_text(path.read_text().replace(machine.environment.identity.cpu, "another"))
    assert cached.load(tmp_path, digest) is None


def test_quick_never_replaces_full_but_fills_its_gaps(machine, tmp_path):
    digest = machine.environment.identity.digest
    quick = dataclasses.replace(machine, quick=True, ceilings=tuple(_times(c, 3.0) for c in machine.ceilings))
    cached.save(tmp_path, quick)
    assert cached.load(tmp_path, digest) == quick
    assert cached.load(tmp_path, digest, full=True) is None
    gap = dataclasses.replace(machine, ceilings=(machine.ceilings[0], judge(machine.ceilings[1], 0.9)))
    assert cached.save(tmp_path, gap).ceilings == (machine.ceilings[0], quick.ceilings[1])
    assert cached.save(tmp_path, quick).quick is False
    assert cached.load(tmp_path, digest, full=True).ceilings[0] == machine.ceilings[0]


def test_a_busy_hour_does_not_spoil_a_quiet_one(machine, tmp_path):
    rate = KernelRate(
        target="torch", kind="conv", dtype="fp32", threads=1, unit="FLOP/s", rate=exactly(1.0), call_s=1.0, shapes=1
    )
    sweep = Cache(level=3, size_bytes=1, bandwidth_bytes_per_s=1.0, source="sweep")
    quiet = dataclasses.replace(machine, kernels=(rate,), caches=(sweep,))
    cached.save(tmp_path, quiet)
    busy = dataclasses.replace(machine, ceilings=tuple(judge(_times(c, 0.1), 0.9) for c in machine.ceilings))
    assert cached.save(tmp_path, busy).ceilings == machine.ceilings
    assert cached.load(tmp_path, machine.environment.identity.digest).kernels == (rate,)
    shaken = dataclasses.replace(
        busy,
        caches=(dataclasses.replace(sweep, source="system"),),
        kernels=(dataclasses.replace(rate, rate=exactly(0.1), valid=False),),
    )
    stored = cached.save(tmp_path, shaken)
    assert (stored.kernels, stored.caches) == ((rate,), (sweep,))
    faster = dataclasses.replace(machine, ceilings=tuple(_times(c, 2.0) for c in machine.ceilings))
    assert cached.save(tmp_path, faster).ceilings == faster.ceilings, "the newer of two settled ones"


def test_an_unsettled_machine_goes_stale_and_a_settled_one_does_not(machine, tmp_path, monkeypatch):
    digest, said = machine.environment.identity.digest, []
    fault = ceiling("fault", "s", [1e-6] * 3)
    cached.save(tmp_path, dataclasses.replace(machine, ceilings=(*machine.ceilings, judge(fault, 0.9))))
    assert cached.load(tmp_path, digest) is not None, "not within a quarter of an hour"
    later = time.time() + 2 * cached.STALE_S
    monkeypatch.setattr(cached.time, "time", lambda: later)
    assert cached.load(tmp_path, digest, talk=said.append) is None
    assert cached.load(tmp_path, digest, stale=True) is not None, "to print it, whatever it is"
    assert said == ["the stored ceilings did not settle (fault): measuring again"]
    cached.save(tmp_path, dataclasses.replace(machine, ceilings=(*machine.ceilings, fault)))
    assert cached.load(tmp_path, digest) is not None


def _times(found, factor):
    return dataclasses.replace(found, low=found.low * factor, value=found.value * factor, high=found.high * factor)


def test_a_failed_write_leaves_the_old_file(machine, tmp_path, monkeypatch):
    digest = machine.environment.identity.digest
    cached.save(tmp_path, machine)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cached.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        cached.save(tmp_path, dataclasses.replace(machine, ceilings=()))
    assert cached.load(tmp_path, digest) == machine
    assert list(tmp_path.iterdir()) == [cached.path_of(tmp_path, digest)]


@pytest.mark.slow
def test_a_real_quick_measure_keeps_its_invariants(tmp_path):
    counts = (1, min(2, environment().identity.cores))
    machine = measuring.measure(threads=counts, quick=True, progress=None, targets=("nosuch",))
    assert from_json(Machine, to_json(machine)) == machine
    assert any("nosuch" in note for note in machine.notes)
    assert machine.quick
    for found in machine.ceilings:
        assert 0 <= found.low <= found.value <= found.high
        assert found.valid or found.note
    cache, dram = machine.ceiling("cache"), machine.ceiling("dram")
    if cache and dram and cache.valid and dram.valid:
        assert cache.high >= dram.low
    assert 50e-9 < machine.ceiling("fault", refused=True).value < 100e-6
    for dtype in ("fp32", "bf16", "int8"):
        assert machine.ceiling("matmul", dtype=dtype, refused=True).value > 0
    assert machine.ceiling("dispatch", refused=True).value < 1e-3
    assert machine.ceiling("allocation_faults", refused=True).unit == "faults"
    assert all(c.size_bytes > 0 and c.bandwidth_bytes_per_s > 0 for c in machine.caches)
    assert cached.save(tmp_path, machine) == machine
