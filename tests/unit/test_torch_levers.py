"""Predictions and refusals of the torch and machine levers, against closed forms on synthetic diagnoses."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from torch_workload import candidate, ceiling, diagnosis, machine, op

from ironlaw.levers.algorithm.bf16 import Bf16
from ironlaw.levers.algorithm.fp16 import Fp16
from ironlaw.levers.data.batch import Batch, BatchSettings
from ironlaw.levers.machine import allocator as malloc
from ironlaw.levers.machine import threads as threading
from ironlaw.levers.machine.allocator import Allocator, AllocatorSettings
from ironlaw.levers.machine.aotinductor import AotInductor
from ironlaw.levers.machine.channels_last import ChannelsLast, ChannelsLastSettings
from ironlaw.levers.machine.clean_up import CleanUp, CleanUpSettings
from ironlaw.levers.machine.compile import Compile, CompileSettings
from ironlaw.levers.machine.replicas import Replicas, ReplicaSettings
from ironlaw.levers.machine.threads import Threads, ThreadSettings
from ironlaw.records import Candidate, Goal, Objective, Op

THROUGHPUT = Goal(objective=Objective.THROUGHPUT)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    return candidate(tmp_path_factory.mktemp("store"))


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)


def on(target: str, here: Candidate) -> Candidate:
    return dataclasses.replace(here, execution=dataclasses.replace(here.execution, target=target))


def aiming(goal: Goal, here: Candidate) -> Candidate:
    return dataclasses.replace(here, goal=goal)


# ---------------------------------------------------------------- threads


def test_threads_follow_amdahl_over_measured_ceilings(here: Candidate) -> None:
    """60 % arithmetic that scales 4x and 20 % memory that scales 2x: 1 / (0.2 + 0.6/4 + 0.2/2)."""
    seen = diagnosis(compute=0.6, memory=0.2, latency=0.2)
    found = Threads().predict(here, ThreadSettings(threads=4), seen, machine())
    assert found.speedup.value == pytest.approx(1 / (0.2 + 0.6 / 4 + 0.2 / 2))
    assert found.speedup.low < found.speedup.value < found.speedup.high < 4


def test_fewer_threads_are_predicted_slower(here: Candidate) -> None:
    many = dataclasses.replace(here, execution=dataclasses.replace(here.execution, threads=4))
    found = Threads().predict(many, ThreadSettings(threads=1), diagnosis(compute=1.0, threads=4), machine())
    assert found.speedup.value == pytest.approx(0.25, rel=0.01)


def test_threads_past_the_bandwidth_knee_give_nothing(here: Candidate) -> None:
    two = dataclasses.replace(here, execution=dataclasses.replace(here.execution, threads=2))
    found = Threads().predict(two, ThreadSettings(threads=4), diagnosis(memory=1.0, threads=2), machine())
    assert found.speedup.value == pytest.approx(1.0)


def test_threads_without_ceilings_are_wide(here: Candidate) -> None:
    bare = dataclasses.replace(machine(), ceilings=())
    found = Threads().predict(here, ThreadSettings(threads=4), diagnosis(compute=1.0), bare)
    assert found.speedup.low < 1 < found.speedup.value < 4
    assert found.speedup.high == pytest.approx(4.0)


def test_threads_stay_within_the_goals_cores(here: Candidate) -> None:
    seen = diagnosis(compute=1.0)
    counts = [o.settings.threads for o in Threads().options(here, seen, machine())]
    assert counts[:2] == [4, 2]
    two = aiming(Goal(cores=2), here)
    assert max(o.settings.threads for o in Threads().options(two, seen, machine())) == 2
    refused = Threads().applies(aiming(Goal(cores=1), here), seen, machine())
    assert not refused
    assert "one core" in refused.reason
    refused = Threads().applies(here, diagnosis(latency=0.98), machine())
    assert not refused
    assert "at most 1.00x" in refused.reason


def test_threads_pin_to_the_first_cores_they_may_use(here: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.os, "sched_getaffinity", lambda _: {7, 2, 5})
    after, change = Threads().apply(here, ThreadSettings(threads=2))
    assert after.execution.cpus == (2, 5)
    assert dict(change.facts) == {"threads": 2, "cpus": "2,5"}
    loose, _ = Threads().apply(here, ThreadSettings(threads=2, pinned=False))
    assert loose.execution.cpus == ()


# ---------------------------------------------------------------- allocator


def test_the_allocator_is_worth_the_paging_term(here: Candidate) -> None:
    """Two thirds of the time in page faults: curing 95 % of them gives 1 / (1/3 + 2/3 / 20)."""
    seen = diagnosis(paging=2 / 3, total_s=1.2)
    found = Allocator().predict(here, AllocatorSettings(), seen, machine())
    assert found.speedup.value == pytest.approx(1 / (1 / 3 + 2 / 3 / 20))
    assert found.speedup.low < 2 < found.speedup.high
    assert "800,000 page faults" in found.basis


def test_the_allocator_is_refused_by_numbers(here: Candidate) -> None:
    refused = Allocator().applies(here, diagnosis(paging=0.01, total_s=10e-3), machine())
    assert not refused
    assert "about 100 page faults" in refused.reason
    assert "at most 1.01x" in refused.reason
    refused = Allocator().applies(on("onnxruntime", here), diagnosis(paging=0.5), machine())
    assert not refused
    assert "torch" in refused.reason


def test_the_allocator_keeps_other_tunables(here: Candidate) -> None:
    found = malloc.variables(AllocatorSettings(huge_pages=True), {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"})
    assert found["GLIBC_TUNABLES"] == "glibc.pthread.rseq=0:glibc.malloc.hugetlb=1"
    again = malloc.variables(AllocatorSettings(huge_pages=True), dict(found))
    assert again == found
    assert "GLIBC_TUNABLES" not in malloc.variables(AllocatorSettings(), {})
    assert int(found["MALLOC_TRIM_THRESHOLD_"]) >= 1 << 30


def test_huge_pages_are_offered_only_where_the_kernel_waits_to_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = tmp_path / "enabled"
    monkeypatch.setattr(malloc, "_THP", control)
    monkeypatch.setattr(malloc, "_glibc", lambda: (2, 36))
    assert not malloc.huge_pages_offered()
    control.write_text("[always] madvise never")
    assert not malloc.huge_pages_offered()
    control.write_text("always [madvise] never")
    assert malloc.huge_pages_offered()
    monkeypatch.setattr(malloc, "_glibc", lambda: (2, 31))
    assert not malloc.huge_pages_offered()


# ---------------------------------------------------------------- replicas and batch


def test_replicas_multiply_what_threads_cannot_share(here: Candidate) -> None:
    """All dispatch: four processes give four times the calls, less what is lost to sharing."""
    found = Replicas().predict(
        aiming(THROUGHPUT, here), ReplicaSettings(replicas=4, threads=1), diagnosis(latency=1.0), machine()
    )
    assert found.speedup.value == pytest.approx(0.95 * 4)


def test_replicas_share_the_bandwidth(here: Candidate) -> None:
    """All memory at one thread (10 of 20 GB/s): four processes get twice the calls, not four times."""
    found = Replicas().predict(
        aiming(THROUGHPUT, here), ReplicaSettings(replicas=4, threads=1), diagnosis(memory=1.0), machine()
    )
    assert found.speedup.value == pytest.approx(0.95 * 2)


def test_replicas_against_threads_already_used(here: Candidate) -> None:
    """Arithmetic that four threads share perfectly: splitting the cores changes nothing."""
    busy = dataclasses.replace(here, execution=dataclasses.replace(here.execution, threads=4), goal=THROUGHPUT)
    found = Replicas().predict(
        busy, ReplicaSettings(replicas=4, threads=1), diagnosis(compute=1.0, threads=4), machine()
    )
    assert found.speedup.value == pytest.approx(0.95)


def test_replicas_keep_the_p99_limit(here: Candidate) -> None:
    busy = dataclasses.replace(here, execution=dataclasses.replace(here.execution, threads=4))
    seen = diagnosis(compute=1.0, total_s=10e-3, threads=4)
    tight = aiming(dataclasses.replace(THROUGHPUT, p99_s=25e-3), busy)
    assert [o.settings for o in Replicas().options(tight, seen, machine())] == [ReplicaSettings(replicas=2, threads=2)]
    tighter = aiming(dataclasses.replace(THROUGHPUT, p99_s=12e-3), busy)
    refused = Replicas().applies(tighter, seen, machine())
    assert not refused
    assert "0.012 s" in refused.reason
    assert "latency" in Replicas().applies(here, seen, machine()).reason


def test_a_batch_shares_what_a_call_pays_once(here: Candidate) -> None:
    """Half dispatch, half arithmetic: 8 examples take 0.5 + 8 x 0.5, so 8 / 4.5 the throughput."""
    seen = diagnosis(compute=0.5, latency=0.5)
    found = Batch().predict(aiming(THROUGHPUT, here), BatchSettings(batch=8), seen, machine())
    assert found.speedup.value == pytest.approx(8 / 4.5)


def test_a_batch_streams_the_weights_once(here: Candidate) -> None:
    """Memory-bound on weights alone (their bytes are all that must move): the gain is the batch."""
    layer = op("linear", "matmul", traffic=10e6, weights_bytes=10e6)
    found = Batch().predict(aiming(THROUGHPUT, here), BatchSettings(batch=4), diagnosis([layer], memory=1.0), machine())
    assert found.speedup.value == pytest.approx(4.0)


def test_a_batch_that_leaves_the_cache_is_less_sure(here: Candidate) -> None:
    layer = op("relu", "elementwise", traffic=8e6)
    seen = diagnosis([layer], memory=0.5, latency=0.5)
    inside = Batch().predict(aiming(THROUGHPUT, here), BatchSettings(batch=4), seen, machine()).speedup
    outside = Batch().predict(aiming(THROUGHPUT, here), BatchSettings(batch=8), seen, machine()).speedup
    assert outside.low / outside.value < inside.low / inside.value


def test_a_batch_keeps_the_p99_limit(here: Candidate) -> None:
    seen = diagnosis(compute=1.0, total_s=10e-3)
    limited = aiming(dataclasses.replace(THROUGHPUT, p99_s=30e-3), here)
    assert {o.settings.batch for o in Batch().options(limited, seen, machine())} == {2, 4}
    fixed = dataclasses.replace(limited, snapshot=dataclasses.replace(here.snapshot, dynamic=False))
    refused = Batch().applies(fixed, seen, machine())
    assert not refused
    assert "fixed at batch 1" in refused.reason


# ---------------------------------------------------------------- half precision


def conv_bound() -> list[Op]:
    return [op("aten::convolution", "conv", 9e-3, flops=0.45e9, traffic=1e6)]


def test_bf16_is_predicted_from_its_kernels(here: Candidate) -> None:
    """Convolutions at 50 GFLOP/s in fp32 and 100 in bf16: about twice, and never more than the cap."""
    found = Bf16().predict(here, Bf16.Settings(), diagnosis(conv_bound(), compute=0.9), machine()).speedup
    assert 1.2 < found.low <= found.value <= found.high <= 4.0
    assert found.value == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize("lever", [Bf16(), Fp16()], ids=["bf16", "fp16"])
def test_emulated_half_precision_is_refused_with_both_rates(lever: Bf16, here: Candidate) -> None:
    seen = diagnosis(conv_bound(), compute=0.9)
    refused = lever.applies(here, seen, machine(narrow=False))
    assert not refused
    assert "0.1 GFLOP/s measured against 100 in fp32" in refused.reason
    assert "bound 0.001x" in refused.reason
    assert lever.applies(here, seen, machine())
    unmeasured = dataclasses.replace(machine(), ceilings=(ceiling("matmul", 100e9, dtype="fp32"),))
    assert "not measured" in lever.applies(here, seen, unmeasured).reason
    already = dataclasses.replace(here, execution=dataclasses.replace(here.execution, precision="bf16"))
    assert "already bf16" in lever.applies(already, seen, machine()).reason
    assert "onnxruntime" in lever.applies(on("onnxruntime", here), seen, machine()).reason


# ---------------------------------------------------------------- layout, clean-up, compilers


def test_channels_last_takes_off_the_reorders(here: Candidate) -> None:
    """20 MB of activations around a convolution of 8 ms: 40 MB reordered at 10 GB/s are 4 ms, half of it counted."""
    layer = op("convolution", "conv", 8e-3, traffic=21e6, weights_bytes=1e6, shape="1x8x56x56,8x8x3x3")
    seen = diagnosis([layer], compute=0.8)
    found = ChannelsLast().predict(here, ChannelsLastSettings(), seen, machine()).speedup
    assert found.value == pytest.approx(10 / (10 - 8 * 0.25))
    assert found.low < 1 < found.high


def test_channels_last_needs_images(here: Candidate) -> None:
    sound = diagnosis([op("convolution", "conv", 8e-3, shape="1x8x56,8x8x3")], compute=0.8)
    assert "2-D" in ChannelsLast().applies(here, sound, machine()).reason
    pictures = diagnosis([op("convolution", "conv", 8e-3, shape="1x8x56x56,8x8x3x3")], compute=0.8)
    assert ChannelsLast().applies(here, pictures, machine())
    assert not ChannelsLast().applies(on("openvino", here), pictures, machine())


def test_clean_up_is_worth_the_norms(here: Candidate) -> None:
    """3 of 10 ms in batch norm: at most 10 / 7."""
    seen = diagnosis([op("native_batch_norm", "norm", 3e-3, calls=20), op("conv", "conv", 6e-3)], compute=0.6)
    found = CleanUp().predict(here, CleanUpSettings(), seen, machine())
    assert found.speedup.value == pytest.approx(10 / (7 + 3 / 50))
    assert "20 batch norms" in found.basis
    none = diagnosis([op("layer_norm", "norm", 3e-3)], compute=0.6)
    assert "nothing to fold" in CleanUp().applies(here, none, machine()).reason
    assert "by itself" in CleanUp().applies(on("openvino", here), seen, machine()).reason


def test_a_compiler_gains_by_what_it_can_fuse(here: Candidate) -> None:
    fusible = [op("relu", "elementwise", 6e-3), op("conv", "conv", 3e-3)]
    library = [op("conv", "conv", 9e-3)]
    much = Compile().predict(here, CompileSettings(), diagnosis(fusible, memory=0.6, compute=0.3), machine()).speedup
    little = Compile().predict(here, CompileSettings(), diagnosis(library, compute=0.9), machine()).speedup
    guards_s = 14 * machine().ceiling("dispatch").value
    assert much.value == pytest.approx(10e-3 / (4e-3 + 6e-3 / 5 + guards_s))
    assert little.value == pytest.approx(10e-3 / (10e-3 + guards_s))
    assert little.low < 1, "compiled can be slower"
    assert much.high > 2 > little.high


def test_a_call_shorter_than_the_guards_of_compiled_code_is_refused(here: Candidate) -> None:
    short = dataclasses.replace(diagnosis([op("relu", "elementwise", 1e-6)], latency=0.8), total_s=5e-6)
    answer = Compile().applies(here, short, machine())
    assert not answer
    assert "compile a larger region" in answer.reason


def test_ahead_of_time_saves_more_dispatch_than_in_process(here: Candidate) -> None:
    seen = diagnosis([op("relu", "elementwise", 1e-3)], latency=0.8)
    just = Compile().predict(here, CompileSettings(freezing=False), seen, machine()).speedup
    ahead = AotInductor().predict(here, AotInductor.Settings(), seen, machine()).speedup
    assert ahead.value > just.value > 1


def test_compilers_do_not_compile_twice(here: Candidate) -> None:
    seen = diagnosis([op("relu", "elementwise", 1e-3)], latency=0.8)
    after, _ = AotInductor().apply(here, AotInductor.Settings())
    assert after.execution.target == "aotinductor"
    assert "already" in Compile().applies(after, seen, machine()).reason
    assert not AotInductor().applies(after, seen, machine())
    compiled, change = Compile().apply(here, CompileSettings())
    assert dict(compiled.execution.options) == {"compile": True, "freezing": True, "mode": "default"}
    ahead, _ = AotInductor().apply(compiled, AotInductor.Settings(freezing=False))
    assert dict(ahead.execution.options) == {"freezing": False}
    assert set(change.claims) & set(AotInductor.claims), "the planner must see that they conflict"
