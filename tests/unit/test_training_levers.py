"""Predictions of the levers of a training job by hand, and their refusals."""

from __future__ import annotations

import dataclasses

import pytest
from torch_workload import candidate, job_diagnosis, job_loader, machine, op, step_times

from ironlaw import registry
from ironlaw.contracts import No
from ironlaw.levers.machine.loader_workers import LoaderWorkersSettings
from ironlaw.records import Candidate, Gain, Goal, Objective, exactly

LEVERS = registry.levers()
HERE = machine(cores=4)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    return candidate(tmp_path_factory.mktemp("job"), goal=Goal(objective=Objective.THROUGHPUT), threads=4)


def predicted(name, job, settings=None, **given):
    lever = LEVERS[name]
    return lever.predict(job, settings or lever.Settings(), job_diagnosis(**given), HERE).speedup


def test_one_worker_hides_what_the_step_outlasts(job):
    """Loading takes 4 ms beside a step of 6 and 0.3 to receive: 10 / 6.3, below the cap of 1.8."""
    assert predicted("loader_workers", job, LoaderWorkersSettings(workers=1)).value == pytest.approx(10 / 6.3)


def test_workers_that_compute_take_cores_from_the_step(job):
    """Two cores share 6 ms of the step, 8 of loading and 0.3 of receiving: 7.15 ms."""
    slow = job_loader(fetch_s=0.0078)
    step = step_times(wait=exactly(0.008))
    found = predicted("loader_workers", job, LoaderWorkersSettings(workers=2), loader=slow, step=step, threads=2)
    assert found.value == pytest.approx(min(14 / 7.15, 1.8))
    waiting = dataclasses.replace(slow, cpu_share=0.1)
    more = dataclasses.replace(step, gain=dataclasses.replace(step.gain, high=2.4))
    free = predicted("loader_workers", job, LoaderWorkersSettings(workers=2), loader=waiting, step=more, threads=2)
    assert free.value == pytest.approx(14 / 6.3)


def test_workers_that_end_with_the_epoch_keep_its_beginning(job):
    step = step_times(restart=exactly(0.001))
    ends = LoaderWorkersSettings(workers=1, persistent=False)
    assert predicted("loader_workers", job, ends, step=step).value == pytest.approx(11 / 7.3)


def test_a_loader_that_waits_is_tried_with_more_workers_than_cores(job):
    def counts(share):
        options = LEVERS["loader_workers"].options(job, job_diagnosis(loader=job_loader(cpu_share=share)), HERE)
        return [option.settings.workers for option in options]

    assert counts(1.0) == [1, 2, 4]
    assert counts(0.2) == [1, 2, 4, 8, 16]


def test_no_gain_is_predicted_beyond_cached_input(job):
    for name in ("sliced_batches", "decoded_samples", "loader_workers"):
        settings = LoaderWorkersSettings(workers=4) if name == "loader_workers" else None
        found = predicted(name, job, settings)
        assert found.value <= 1.8
        assert found.high <= 1.8 * 1.02 + 1e-9


def test_one_read_leaves_little_of_loading(job):
    """0.15 of 4 ms stays: 10 / 6.6."""
    assert predicted("sliced_batches", job).value == pytest.approx(10 / 6.6)


def test_decoded_samples_are_copied(job):
    """0.1 ms and 32 KiB at 1 GB/s: 10 / 6.133."""
    assert predicted("decoded_samples", job).value == pytest.approx(10 / (6.1 + 0.032768), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "loader", "words"),
    [
        ("loader_workers", {"samples": None, "note": "a stream"}, "a stream"),
        ("sliced_batches", {"slices": False}, "does not give the collated batch"),
        ("decoded_samples", {"repeats": False}, "freeze the augmentation"),
        ("decoded_samples", {"sample_bytes": None}, "make no arrays"),
        ("decoded_samples", {"sample_bytes": 1 << 24}, "more than half"),
    ],
)
def test_refusals_say_why(job, name, loader, words):
    answer = LEVERS[name].applies(job, job_diagnosis(loader=job_loader(**loader)), HERE)
    assert isinstance(answer, No)
    assert words in answer.reason


def test_input_that_costs_nothing_needs_no_lever(job):
    gain = Gain(median=1.0, low=0.99, high=1.01, floor=1.0, settled=True, launches=3)
    answer = LEVERS["loader_workers"].applies(job, job_diagnosis(step=step_times(gain=gain)), HERE)
    assert isinstance(answer, No)
    assert "at most 1.01x" in answer.reason


def test_checkpointing_is_for_memory(job):
    lever = LEVERS["checkpointing"]
    slower = lever.applies(job, job_diagnosis(), HERE)
    assert isinstance(slower, No)
    assert "1.20x" not in slower.reason
    assert "0.83x" in slower.reason  # a forward pass of 2 ms again on 10
    assert lever.applies(dataclasses.replace(job, goal=Goal(objective=Objective.MEMORY)), job_diagnosis(), HERE)


def test_bf16_must_have_kernels_and_a_judge(job):
    lever = LEVERS["mixed_precision"]
    ops = [op("convolution", "conv", 0.0055, flops=4e8)]
    assert lever.applies(job, job_diagnosis(ops), HERE)
    slow = lever.applies(job, job_diagnosis(ops), machine(narrow=False))
    assert isinstance(slow, No)
    assert "GFLOP/s in bf16 against" in slow.reason
    assert "no evaluate" in registry.unmet(lever.needs, evaluate=False)[0]
    found = lever.predict(job, lever.Settings(), job_diagnosis(ops), HERE).speedup
    assert 1.1 < found.value < 1 / (1 - 0.59 + 0.59 / 4)
