"""How probes are started, what becomes of those that fail, and what is kept on disk."""

import dataclasses
import sys
from pathlib import Path

import pytest

from ironlaw.machine import cached, measuring
from ironlaw.machine.environment import environment
from ironlaw.machine.gate import Findings, ceiling
from ironlaw.machine.measuring import Job
from ironlaw.records import Machine, UserError, from_json, to_json


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
    digest = machine.environment.identity.digest
    assert cached.load(tmp_path / "none", digest) is None
    path = cached.save(tmp_path / "deep" / "machines", machine)
    assert cached.load(path.parent, digest) == machine
    assert cached.load(path.parent, "0" * 64) is None
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no temporary file stays"


@pytest.mark.parametrize("damage", [lambda t: t[: len(t) // 2], lambda t: "[]", lambda t: "{}", lambda t: "\0" * 9])
def test_a_corrupt_file_is_no_machine_and_says_so(machine, tmp_path, damage):
    path = cached.save(tmp_path, machine)
    path.write_text(damage(path.read_text()))
    said = []
    assert cached.load(tmp_path, machine.environment.identity.digest, talk=said.append) is None
    assert len(said) == 1
    assert str(path) in said[0]
    cached.save(tmp_path, machine)
    assert cached.load(tmp_path, machine.environment.identity.digest) == machine


def test_a_file_of_another_identity_is_refused(machine, tmp_path):
    digest = machine.environment.identity.digest
    path = cached.save(tmp_path, machine)
    path.write_text(path.read_text().replace(machine.environment.identity.cpu, "another"))
    assert cached.load(tmp_path, digest) is None


def test_quick_never_replaces_full(machine, tmp_path):
    digest = machine.environment.identity.digest
    quick = dataclasses.replace(machine, quick=True, ceilings=())
    cached.save(tmp_path, quick)
    assert cached.load(tmp_path, digest) == quick
    assert cached.load(tmp_path, digest, full=True) is None
    cached.save(tmp_path, machine)
    cached.save(tmp_path, quick)
    assert cached.load(tmp_path, digest) == machine


def test_a_failed_write_leaves_the_old_file(machine, tmp_path, monkeypatch):
    path = cached.save(tmp_path, machine)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cached.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        cached.save(tmp_path, dataclasses.replace(machine, ceilings=()))
    assert cached.load(tmp_path, machine.environment.identity.digest) == machine
    assert list(tmp_path.iterdir()) == [path]


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
    assert 50e-9 < machine.ceiling("fault").value < 100e-6
    for dtype in ("fp32", "bf16", "int8"):
        assert machine.ceiling("matmul", dtype=dtype).value > 0
    assert machine.ceiling("dispatch").value < 1e-3
    assert machine.ceiling("allocation_faults").unit == "faults"
    assert all(c.size_bytes > 0 and c.bandwidth_bytes_per_s > 0 for c in machine.caches)
    assert Path(cached.save(tmp_path, machine)).stat().st_size > 1000
