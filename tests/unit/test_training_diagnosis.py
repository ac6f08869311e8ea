"""Terms, caps and killers of a training step: arithmetic on set times, and verdicts on jobs that really run here."""

import os
import signal
import time
import uuid

import psutil
import pytest
import torch
import torch_workload
from torch import nn
from torch.utils.data import DataLoader

import ironlaw as il
from ironlaw.diagnose import merge
from ironlaw.diagnose.loading import loading_findings
from ironlaw.diagnose.training import diagnose_step
from ironlaw.measure import profile_torch
from ironlaw.measure.ledger_torch import count
from ironlaw.measure.paired import FOREIGN_LIMIT
from ironlaw.measure.process import Child
from ironlaw.measure.steps import Feed, Ring, one_step, turns
from ironlaw.records import (
    Execution,
    Finding,
    Gain,
    Interval,
    Ledger,
    Op,
    Term,
    UserError,
    exactly,
    from_json,
    to_data,
    to_json,
)
from ironlaw.records.diagnosis import Diagnosis
from ironlaw.records.training import Loader, StepTimes
from ironlaw.training_diagnosis import Effort, examined
from ironlaw.workloads.job import Job
from ironlaw.workloads.parcel import pack

SHORT = Effort(launches=1, turns_s=1.0, block_s=0.1, warm_limit_s=1.0, stages_s=0.2, profile_s=0.2)


def near(value, width=0.02):
    return Interval(low=value * (1 - width), value=value, high=value * (1 + width))


def times(**changed):
    """10 ms: 4 waiting, 2 forward, 3 backward, 0.9 optimiser, 0.1 rest; 6 on cached input."""
    parts = {
        "wait": near(0.004), "restart": exactly(0.0), "copy": exactly(0.0), "forward": near(0.002),
        "backward": near(0.003), "optimiser": near(0.0009), "rest": near(0.0001), **changed,
    }  # fmt: skip
    total = sum(parts[name].value for name in ("wait", "restart", "copy", "forward", "backward", "optimiser", "rest"))
    cached = parts.pop("cached_s", 0.006)
    ratio = total / cached
    rest = {
        "contention": exactly(0.0), "faults": 0.0, "cpu_s": cached, "system_s": 0.0, "foreign_cpu": 0.0,
        "device": "cpu", "batch": 32, "steps": 100, "blocks": 10, "launches": 3,
        "gain": Gain(median=ratio, low=0.97 * ratio, high=1.03 * ratio, floor=1.0, settled=True, launches=3),
    }  # fmt: skip
    return StepTimes(total=near(total), cached=near(cached), **{**rest, **parts})


def loader(**changed):
    return Loader(**{"kind": "DataLoader", "fetch_s": 0.004, "collate_s": 0.0002, "cpu_share": 0.1, **changed})


def conv(time_s):
    return Op(
        name="convolution", kind="conv", calls=1, flops=4e8, bytes_low=1e5, bytes_high=4e5, shape="1", time_s=time_s
    )


LEDGER = Ledger(ops=(conv(0.0058),), batch=32, source="test", profiled_s=0.0059)
RUN = Execution(threads=2, cpus=(0, 1), batch=32)


def diagnosed(step, feed=None):
    return diagnose_step(LEDGER, step, feed or loader(), torch_workload.machine(cores=2), RUN)


def bound(diagnosis, change):
    return next(one for one in diagnosis.bounds if one.change == change)


# ---------------------------------------------------------------- terms and caps


def test_terms_sum_to_the_step_and_each_part_has_its_amdahl_cap():
    found = diagnosed(times())
    assert sum(one.seconds.value for one in found.terms) == pytest.approx(0.010)
    assert found.seconds(Term.IO) == pytest.approx(0.004)
    assert found.seconds(Term.SERIAL) == pytest.approx(0.0001)
    assert found.seconds(Term.COMPUTE) > 0.005
    assert found.dominant is Term.COMPUTE
    assert bound(found, "infinitely fast loading").speedup == pytest.approx(10 / 6)
    assert bound(found, "free forward pass").speedup == pytest.approx(10 / 8)
    assert bound(found, "free backward pass").speedup == pytest.approx(10 / 7)
    assert bound(found, "free optimiser").speedup == pytest.approx(10 / 9.1)
    assert from_json(Diagnosis, to_json(found)) == found


def test_a_change_within_the_passes_is_charged_for_what_it_cannot_touch():
    """All arithmetic free removes the compute term and leaves the rest of the step, waiting included."""
    found = diagnosed(times())
    most = bound(found, "unlimited FLOP/s")
    assert most.speedup == pytest.approx(0.010 / (0.010 - found.seconds(Term.COMPUTE)), rel=0.01)
    assert not {"int8", "structured pruning", "Winograd"} & {one.change for one in found.bounds}


def test_waiting_dominates_and_cached_input_confirms_it():
    found = diagnosed(times(wait=near(0.020), cached_s=0.006))
    assert found.dominant is Term.IO
    (changed,) = found.perturbations
    assert changed.term is Term.IO
    assert changed.confirms is True
    assert changed.seconds.value == pytest.approx(0.020)


def test_a_wait_that_caching_does_not_cure_is_not_the_verdict():
    """The step waits as long on batches in memory: whatever it waits for, it is not loading."""
    found = diagnosed(times(wait=near(0.020), cached_s=0.0255))
    assert found.perturbations[0].confirms is False
    assert found.dominant is not Term.IO
    assert bound(found, "infinitely fast loading").wasted


def test_what_a_loader_takes_from_the_step_beside_it_may_be_input():
    found = diagnosed(times(contention=near(0.002), cached_s=0.004))
    term = next(one for one in found.terms if one.term is Term.IO)
    assert term.seconds.high == pytest.approx(0.00408 + 0.00204, rel=0.01)
    assert found.perturbations[0].confirms is True


def test_a_device_that_works_on_its_own_is_not_explained_by_the_cpus_ceilings():
    found = diagnosed(times(device="cuda:0", copy=near(0.001), cached_s=0.007))
    assert [one.term for one in found.terms] == [Term.IO, Term.SERIAL, Term.RESIDUAL]
    assert found.seconds(Term.RESIDUAL) == pytest.approx(0.0059)
    assert found.seconds(Term.IO) == pytest.approx(0.005)
    assert found.dominant is None
    assert bound(found, "free copies to the device").speedup == pytest.approx(11 / 10)
    assert found.overlapped_bound_s is None


# ---------------------------------------------------------------- killers


def kinds(step, feed, cores=4, threads=2):
    return [one.kind for one in loading_findings(step, feed, cores=cores, threads=threads)]


NO_WAIT = times(wait=near(0.00005), cached_s=0.006)


def test_no_workers_and_a_wait():
    (found,) = loading_findings(times(), loader(), cores=4, threads=2)
    assert found.kind == "too_few_workers"
    assert found.share == pytest.approx(0.4)
    assert "num_workers=1" in found.remedy  # 4.2 ms of loading hide behind 6 ms of step


def test_busy_workers_and_a_wait():
    step = times(wait=near(0.004))
    (found,) = loading_findings(step, loader(workers=2, fetch_s=0.0198), cores=8, threads=2)
    assert found.kind == "too_few_workers"
    assert "each of 2 workers loads 100% of the time" in found.evidence
    assert "num_workers=4" in found.remedy  # 20 ms over 6


def test_more_workers_are_no_remedy_where_loading_is_cpu_work_and_cores_are_taken():
    feed = loader(workers=2, fetch_s=0.0198, cpu_share=1.0)
    (found,) = loading_findings(times(), feed, cores=2, threads=2)
    assert "more workers would only share them" in found.remedy
    assert "num_workers" not in found.remedy


def test_one_core_cannot_overlap_cpu_work():
    (found,) = loading_findings(times(), loader(cpu_share=1.0), cores=1, threads=1)
    assert "num_workers" not in found.remedy
    (found,) = loading_findings(times(), loader(cpu_share=0.1), cores=4, threads=1)
    assert "num_workers=1" in found.remedy


def test_cured_twins_are_silent():
    assert kinds(NO_WAIT, loader(workers=2, fetch_s=0.008)) == []
    assert kinds(NO_WAIT, loader(fetch_s=0.00005, collate_s=0.0)) == []


def test_idle_workers_that_still_wait_receive_slowly():
    assert kinds(times(), loader(workers=4, fetch_s=0.002, transfer_s=0.0035)) == ["slow_receiving"]
    assert kinds(times(), loader(workers=4, fetch_s=0.002, transfer_s=0.0001)) == []


def test_idle_workers():
    step = NO_WAIT
    assert kinds(step, loader(workers=8, fetch_s=0.004)) == ["idle_workers"]
    assert kinds(step, loader(workers=2, fetch_s=0.004)) == []


def test_oversubscription_needs_the_slow_down_as_evidence():
    crowd = loader(workers=4, fetch_s=0.020, worker_cpu=0.9, worker_threads=9, cpu_share=1.0)
    slowed = times(wait=near(0.00005), contention=near(0.002))
    (found,) = loading_findings(slowed, crowd, cores=4, threads=4)
    assert found.kind == "oversubscription"
    assert found.share == pytest.approx(0.002 / slowed.total.value)
    assert kinds(slowed, crowd, cores=16) == []
    assert kinds(NO_WAIT, crowd, cores=4) == []


def test_epochs_that_begin_slowly():
    step = times(wait=near(0.00005), restart=near(0.002))
    (found,) = loading_findings(step, loader(workers=2, batches=50, fetch_s=0.006), cores=8, threads=2)
    assert (found.kind, found.remedy) == ("epoch_restarts", "persistent_workers=True")
    assert "100 ms for 50 batches" in found.evidence
    (found,) = loading_findings(step, loader(workers=2, batches=5, persistent=True, fetch_s=0.006), cores=8, threads=2)
    assert "longer epochs" in found.remedy


def test_copies_from_pageable_memory():
    step = times(wait=near(0.00005), copy=near(0.002), device="cuda:0")
    assert kinds(step, loader(workers=1)) == ["unpinned_copies"]
    assert kinds(step, loader(workers=1, pinned=True)) == []


def test_iterables_are_told_to_become_loaders():
    feed = Loader(kind="function", fetch_s=0.004, note="not a DataLoader")
    (found,) = loading_findings(times(), feed, cores=4, threads=2)
    assert isinstance(found, Finding)
    assert "DataLoader" in found.remedy


# ---------------------------------------------------------------- what really runs


class Sleepy:
    """A loader without workers whose batches take 5 ms to come, whatever they hold."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((8,), index / 64.0), index % 3


def after_5_ms(samples):
    time.sleep(0.005)
    return torch.utils.data.default_collate(samples)


def small():
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 5)
    )


def training(data, model=None):
    return il.Training(model or small(), data, nn.functional.cross_entropy, sgd)


def test_the_parts_of_real_steps_sum_to_their_wall_time():
    torch.manual_seed(0)
    images = [(torch.randn(8, 3, 16, 16), torch.arange(8) % 5) for _ in range(4)]
    job = Job(training(images, cnn()))
    ring = Ring(images)
    job.first_step(images[0])
    found = turns(job, Feed(job.epoch), ring, seconds=0.5, block_s=0.1, step_s=0.01, ahead=0)
    for block in (*found.normal, *found.cached):
        assert 0.9 * block.wall_s <= sum(block.parts_s) <= block.wall_s
        assert min(block.parts_s[2:]) > 0.0
    assert found.batches == 4


def test_operators_of_all_passes_meet_their_counts():
    """Counting and profiling see one step; nothing but what has no formula is left over."""
    torch.manual_seed(0)
    images = (torch.randn(8, 3, 16, 16), torch.arange(8) % 5)
    job = Job(training([images], cnn()))
    job.first_step(images)

    def step():
        with torch.enable_grad():
            one_step(job, lambda: images)

    ledger = merge(count(step, batch=8), profile_torch.profile(step, 3))
    timed = {op.name: op for op in ledger.ops if op.time_s}
    assert {"convolution", "convolution_backward", "addmm", "mm", "threshold_backward"} <= set(timed)
    assert timed["convolution_backward"].flops == 2 * 3 * 16 * 16 * 16 * 8 * 9  # weights only: no gradient of images
    assert not [op.name for op in ledger.ops if "evaluate_function" in op.name or "Accumulate" in op.name]


@pytest.mark.slow
def test_a_sleeping_loader_is_io_and_its_cached_twin_is_not(tmp_path):
    """Where others take the CPU, computing takes any time: the verdict may then be open, never another term."""
    machine, cpus = torch_workload.machine(cores=1), (min(os.sched_getaffinity(0)),)
    slow = DataLoader(Sleepy(), batch_size=8, collate_fn=after_5_ms)
    found = examined(training(slow), machine, cpus, tmp_path, lambda _: None, SHORT)
    if found.times.foreign_cpu <= FOREIGN_LIMIT:
        assert found.diagnosis.share(Term.IO) > 0.5
    assert found.diagnosis.dominant in (Term.IO, None)
    assert found.times.io_s > 0.0045  # 5 ms, of which a little may fall to the scaling
    assert found.loader.collate_s >= 0.005
    assert sum(one.seconds.value for one in found.diagnosis.terms) == pytest.approx(found.diagnosis.total_s)
    twin = examined(training([*slow]), machine, cpus, tmp_path, lambda _: None, SHORT)
    assert twin.diagnosis.share(Term.IO) < 0.2
    assert twin.diagnosis.dominant is not Term.IO
    assert "too_few_workers" not in [one.kind for one in twin.diagnosis.findings]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_loader_workers_run_and_leave_no_process_behind(tmp_path, monkeypatch):
    mark = uuid.uuid4().hex
    monkeypatch.setenv("IRONLAW_TEST_MARK", mark)
    job = training(DataLoader(Sleepy(), batch_size=8, num_workers=2))
    found = examined(
        job, torch_workload.machine(cores=2), (min(os.sched_getaffinity(0)),), tmp_path, lambda _: None, SHORT
    )
    assert found.loader.workers == 2
    assert found.loader.transfer_s > 0.0
    assert found.loader.worker_threads >= 1
    assert marked(mark) == []


@pytest.mark.slow
def test_loader_workers_die_with_a_worker_that_is_killed(tmp_path, monkeypatch):
    mark = uuid.uuid4().hex
    monkeypatch.setenv("IRONLAW_TEST_MARK", mark)
    path = pack(training(DataLoader(Sleepy(), batch_size=8, num_workers=2)), tmp_path)
    with Child("ironlaw.steps_worker") as child:
        child.ask("open", timeout_s=120, path=str(path), execution=to_data(Execution()))
        assert len(marked(mark)) == 3
        os.kill(child.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while len(marked(mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert marked(mark) == []


@pytest.mark.slow
def test_what_is_wrong_over_there_is_told_here(tmp_path):
    class Broken(Sleepy):
        def __getitem__(self, index):
            raise KeyError("no such label")

    with pytest.raises(UserError, match="no such label") as caught:
        examined(
            training(DataLoader(Broken(), batch_size=8)),
            torch_workload.machine(),
            (0,),
            tmp_path,
            lambda _: None,
            SHORT,
        )
    assert __file__ in caught.value.wrong


def marked(mark):
    """Processes that have the mark in their environment and have not ended."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("IRONLAW_TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return [pid for pid in found if pid != os.getpid()]
