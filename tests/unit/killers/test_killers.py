"""Each silent killer on a sick model and on its cured twin; the healthy model has none at all."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from killers_situations import (
    DRAM,
    IMAGE,
    PEAK,
    RATES,
    Block,
    ceiling,
    counted,
    facts,
    found,
    machine,
    timed,
)

from ironlaw.diagnose.killers import DETECTORS, findings
from ironlaw.records import Certificate, Execution, Inspection, Interval, KernelRate, Ledger, Op, Term

HEALTHY_LOOK = Inspection(
    subnormal_weights=0.0,
    subnormal_activations=0.0,
    zero_share=0.001,
    widths=(("stem.in", 3), ("stem.out", 64), ("head.in", 64), ("head.out", 10)),
    pools=(("torch", 1),),
    busy_threads=1,
)


@pytest.fixture(scope="module")
def healthy() -> Ledger:
    return timed(counted(Block(), IMAGE))


def test_a_healthy_model_has_no_killer(healthy: Ledger) -> None:
    proof = Certificate(eligible=3, converted=3, proven=True)
    assert findings(facts(healthy, certificate=proof, inspection=HEALTHY_LOOK)) == ()


def test_findings_are_ordered_by_share_and_carry_numbers(healthy: Ledger) -> None:
    seen = facts(
        healthy,
        execution=Execution(threads=1, replicas=16),
        idle_s=0.1,
        faults_per_call=40_000.0,
        system_s_per_call=0.08,
        inspection=dataclasses.replace(HEALTHY_LOOK, zero_share=0.9),
    )
    kinds = [one.kind for one in findings(seen)]
    assert kinds == ["page_faults", "masked_weights", "oversubscription"]
    for one in findings(seen):
        assert re.search(r"\d", one.evidence)
        assert one.remedy
    assert found("page_faults", seen).share > found("masked_weights", seen).share


def test_every_kind_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "killers.md").read_text()
    for detect in DETECTORS:
        assert f"`{detect.__name__}`" in page


def test_a_run_that_took_no_time_is_our_own_mistake(healthy: Ledger) -> None:
    seen = facts(healthy)
    still = dataclasses.replace(seen.measurement, latency_s=dataclasses.replace(seen.measurement.latency_s, p50=0.0))
    with pytest.raises(ValueError, match="positive median"):
        findings(dataclasses.replace(seen, measurement=still))


# ---------------------------------------------------------------- paging


def test_page_faults_that_take_the_call(healthy: Ledger) -> None:
    storm = found("page_faults", facts(healthy, idle_s=0.1, faults_per_call=40_000.0, system_s_per_call=0.08))
    assert storm is not None
    assert storm.attacks is Term.PAGING
    assert 0.5 < storm.share < 0.95
    assert "40,000" in storm.evidence
    assert "allocator" in storm.remedy
    kept = Execution(variables=(("MALLOC_MMAP_THRESHOLD_", "4294967296"),))
    again = found(
        "page_faults", facts(healthy, execution=kept, idle_s=0.1, faults_per_call=4e4, system_s_per_call=0.08)
    )
    assert "reuse buffers" in again.remedy


def test_page_faults_without_a_price_are_told_by_the_kernels_time(healthy: Ledger) -> None:
    unknown = machine(without=("fault",))
    storm = found("page_faults", facts(healthy, unknown, idle_s=0.1, faults_per_call=4e4, system_s_per_call=0.05))
    assert storm.share == pytest.approx(0.05 / facts(healthy, idle_s=0.1).total_s)


def test_a_few_faults_are_no_storm(healthy: Ledger) -> None:
    assert found("page_faults", facts(healthy, idle_s=0.1, faults_per_call=60.0, system_s_per_call=0.09)) is None
    assert found("page_faults", facts(healthy, idle_s=1.0, faults_per_call=5_000.0, system_s_per_call=0.01)) is None


# ---------------------------------------------------------------- denormals


def test_denormals_by_share_and_by_what_flushing_them_gives(healthy: Ledger) -> None:
    sick = dataclasses.replace(HEALTHY_LOOK, subnormal_activations=0.3, flushed_speedup=4.0)
    one = found("denormals", facts(healthy, inspection=sick))
    assert one.share == pytest.approx(0.75)
    assert "0.3 of the activations" in one.evidence
    assert found("denormals", facts(healthy, inspection=dataclasses.replace(sick, flushed_speedup=1.0))).share == 0.0
    rare = dataclasses.replace(sick, subnormal_activations=0.004)
    assert found("denormals", facts(healthy, inspection=rare)) is not None
    assert found("denormals", facts(healthy, inspection=dataclasses.replace(rare, flushed_speedup=1.01))) is None


def test_flushed_denormals_are_cured(healthy: Ledger) -> None:
    cured = dataclasses.replace(HEALTHY_LOOK, subnormal_weights=0.3, flushes_subnormals=True)
    assert found("denormals", facts(healthy, inspection=cured)) is None
    assert found("denormals", facts(healthy, inspection=HEALTHY_LOOK)) is None


# ---------------------------------------------------------------- threads


def test_oversubscription_is_a_product(healthy: Ledger) -> None:
    eight = found("oversubscription", facts(healthy, execution=Execution(threads=2, replicas=4)))
    assert "4 processes x 2 threads = 8 on 4 cores" in eight.evidence
    assert found("oversubscription", facts(healthy, execution=Execution(threads=2, replicas=2))) is None


def test_oversubscription_by_threads_that_worked(healthy: Ledger) -> None:
    look = dataclasses.replace(HEALTHY_LOOK, busy_threads=16, pools=(("torch", 1), ("cv2", 16)))
    own = found("oversubscription", facts(healthy, inspection=look))
    assert "16 threads used the CPU" in own.evidence
    assert "cv2 16" in own.evidence
    pinned = Execution(threads=2, cpus=(0, 1))
    assert found("oversubscription", facts(healthy, execution=pinned, inspection=HEALTHY_LOOK)) is None
    three = dataclasses.replace(HEALTHY_LOOK, busy_threads=3)
    assert found("oversubscription", facts(healthy, execution=pinned, inspection=three)) is not None


def test_oversubscription_by_the_environment(healthy: Ledger) -> None:
    shell = machine(variables=(("OMP_NUM_THREADS", "64"), ("MKL_NUM_THREADS", "2")))
    assert "OMP_NUM_THREADS=64 on 4 cores" in found("oversubscription", facts(healthy, shell)).evidence
    assert found("oversubscription", facts(healthy, machine(variables=(("OMP_NUM_THREADS", "4"),)))) is None


def streaming() -> Ledger:
    """Weights that are read once and never fit: bound by memory."""
    return timed(counted(torch.nn.Linear(4096, 4096, bias=False), torch.zeros(1, 4096)))


def test_threads_past_the_bandwidth_knee() -> None:
    flat = machine(ceiling("dram", 1.02 * DRAM, threads=2), ceiling("dram", 0.98 * DRAM, threads=4))
    sick = found("bandwidth_knee", facts(streaming(), flat, Execution(threads=4)))
    assert "gives 20 GB/s to 1 thread but 19.6 GB/s to 4" in sick.evidence
    assert "1 are enough" in sick.remedy
    assert 0.0 < sick.share < 0.05
    assert found("bandwidth_knee", facts(streaming(), flat, Execution(threads=1))) is None


def test_threads_that_bring_bandwidth_are_no_killer(healthy: Ledger) -> None:
    growing = machine(ceiling("dram", 1.9 * DRAM, threads=2), ceiling("dram", 3.5 * DRAM, threads=4))
    assert found("bandwidth_knee", facts(streaming(), growing, Execution(threads=4))) is None
    flat = machine(ceiling("dram", DRAM, threads=4))
    compute = timed(counted(torch.nn.Linear(512, 512), torch.zeros(4096, 512)))
    assert found("bandwidth_knee", facts(compute, flat, Execution(threads=4))) is None
    unknown = facts(streaming(), machine(), Execution(threads=4))
    assert found("bandwidth_knee", unknown) is None, "no ceiling at that count"


# ---------------------------------------------------------------- precision


def test_half_precision_that_is_emulated() -> None:
    half = timed(counted(torch.nn.Linear(256, 256).half(), torch.zeros(64, 256).half()))
    sick = found("emulated_precision", facts(half))
    assert sick.share > 0.9
    assert "fp16 reaches 0.3 GFLOP/s here, fp32 100: 333.3 times slower" in sick.evidence
    assert "bf16" in sick.remedy
    brain = timed(counted(torch.nn.Linear(256, 256).bfloat16(), torch.zeros(64, 256).bfloat16()))
    assert found("emulated_precision", facts(brain)) is None, "bf16 has its kernel on this machine"
    slow = {**RATES, "bf16": 0.02 * PEAK}
    assert found("emulated_precision", facts(timed(counted(Block(), IMAGE)), machine(rates=slow))) is None
    cast = facts(timed(counted(Block(), IMAGE)), machine(rates=slow), Execution(precision="bf16"))
    assert "keep fp32" in found("emulated_precision", cast).remedy


def test_half_precision_by_the_runtimes_own_kernels(healthy: Ledger) -> None:
    def kernel(dtype: str, rate: float) -> KernelRate:
        wide = Interval(low=0.5 * rate, value=rate, high=2 * rate)
        return KernelRate(
            target="openvino", kind="conv", dtype=dtype, threads=1, unit="FLOP/s", rate=wide, call_s=1e-6, shapes=9
        )

    execution = Execution(target="openvino", precision="bf16")
    for rate, expected in ((20e9, True), (150e9, False)):
        host = dataclasses.replace(machine(), kernels=(kernel("bf16", rate), kernel("fp32", 100e9)))
        assert (found("emulated_precision", facts(healthy, host, execution)) is not None) is expected


def int8_ledger(seconds: float) -> Ledger:
    """Eight products of 2 GFLOP in int8 that take so long, and a little else."""
    product = Op(
        name="MatMulInteger",
        kind="matmul",
        calls=8,
        flops=16e9,
        bytes_low=1e7,
        bytes_high=1e8,
        dtype="int8",
        time_s=seconds,
        weights_bytes=1e7,
    )
    rest = Op(name="Add", kind="elementwise", calls=8, flops=1e6, bytes_low=1e6, bytes_high=1e6, time_s=1e-4)
    return Ledger(ops=(product, rest), batch=1, source="test")


def test_int8_that_is_slower_than_float() -> None:
    execution = Execution(target="onnxruntime")
    sick = found("int8_slow", facts(int8_ledger(3.0), execution=execution))
    assert "they take 3,000 ms, the same in fp32 about" in sick.evidence
    assert found("int8_slow", facts(int8_ledger(0.05), execution=execution)) is None
    untimed = Ledger(ops=tuple(dataclasses.replace(op, time_s=None) for op in int8_ledger(1.0).ops), batch=1, source="")
    reference = machine(rates={**RATES, "int8": 0.02 * PEAK})
    assert "no int8 kernel" in found("int8_slow", facts(untimed, reference)).evidence
    assert found("int8_slow", facts(untimed)) is None


def test_int8_that_saturates_without_a_dot_product(healthy: Ledger) -> None:
    old = machine(isa=("avx", "avx2"))
    look = dataclasses.replace(HEALTHY_LOOK, saturating=12)
    sick = found("int8_saturation", facts(healthy, old, inspection=look))
    assert sick.evidence.startswith("12 operators multiply u8 by s8")
    assert "reduce_range" in sick.remedy
    assert found("int8_saturation", facts(healthy, machine(), inspection=look)) is None, "VNNI does not saturate"
    narrow = dataclasses.replace(look, saturating=0)
    assert found("int8_saturation", facts(healthy, old, inspection=narrow)) is None
    assert found("int8_saturation", facts(healthy, old, inspection=HEALTHY_LOOK)) is None, "not known"


# ---------------------------------------------------------------- layout


@pytest.mark.parametrize(
    ("channels", "isa", "fires"),
    [
        (65, "avx512f", True),
        (65, "avx2", True),
        (36, "avx512f", True),
        (64, "avx512f", False),
        (72, "avx2", False),
        (72, "avx512f", False),
    ],
)
def test_channels_that_miss_the_vector_width(channels: int, isa: str, fires: bool) -> None:
    seen = facts(timed(counted(Block(channels), IMAGE)), machine(isa=(isa,)))
    one = found("channel_width", seen)
    assert (one is not None) is fires
    if one:
        assert f"convolution {channels}x{channels}" in one.evidence
        assert 0.1 < one.share < 0.6


def test_channels_of_a_product_and_of_tiny_layers() -> None:
    wide = timed(counted(torch.nn.Linear(512, 17), torch.zeros(4096, 512)))
    assert ": addmm 17" in found("channel_width", facts(wide)).evidence
    one_row = timed(counted(torch.nn.Linear(512, 17), torch.zeros(1, 512)))
    assert found("channel_width", facts(one_row)) is None, "bound by reading the matrix"
    tiny = timed(counted(torch.nn.Conv2d(1, 6, 5), torch.zeros(1, 1, 12, 12)))
    assert found("channel_width", facts(tiny)) is None, "its time is dispatch"
    assert found("channel_width", facts(wide, machine(isa=()))) is None


class PingPong(torch.nn.Module):
    """Every step turns the image over, and back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.relu(x.permute(0, 2, 3, 1).contiguous())
            x = torch.relu(x.permute(0, 3, 1, 2).contiguous())
        return x


class OneLayout(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = torch.relu(x)
        return x


class Joins(torch.nn.Module):
    """Copies that are work: two results become one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.nn.functional.pad(x, (1, 1)), torch.nn.functional.pad(x, (1, 1))])


def test_copies_between_layouts() -> None:
    image = torch.zeros(2, 64, 32, 32)
    sick = found("layout_copies", facts(timed(counted(PingPong(), image))))
    assert sick.evidence.startswith("6 copies")
    assert sick.share == pytest.approx(0.5, abs=0.1)
    assert "channels_last" in sick.remedy
    for twin in (OneLayout(), Joins()):
        assert found("layout_copies", facts(timed(counted(twin, image)))) is None


# ---------------------------------------------------------------- dispatch


class Crumbs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(200):
            x = torch.tanh(x)
        return x


def test_operators_too_small_for_their_dispatch() -> None:
    sick = found("small_operators", facts(timed(counted(Crumbs(), torch.zeros(16)))))
    assert sick.attacks is Term.LATENCY
    assert sick.share > 0.9
    assert sick.evidence.startswith("200 operators a call")
    assert "compile" in sick.remedy
    assert found("small_operators", facts(timed(counted(Crumbs(), torch.zeros(1 << 20))))) is None
    graph = facts(timed(counted(Crumbs(), torch.zeros(16))), execution=Execution(target="onnxruntime"))
    assert found("small_operators", graph) is None, "no fixed cost was measured in that runtime"


class Reads(torch.nn.Module):
    """Asks for one value after the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = 0.0
        for row in x:
            total += row.max().item()
        return x * total


class ReadsNothing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.amax(1).sum()


def test_values_read_in_a_loop() -> None:
    rows = torch.ones(32, 64)
    sick = found("synchronous_reads", facts(timed(counted(Reads(), rows))))
    assert sick.evidence.startswith("32 reads")
    assert sick.attacks is Term.LATENCY
    assert found("synchronous_reads", facts(timed(counted(ReadsNothing(), rows)))) is None
    assert found("synchronous_reads", facts(timed(counted(Reads(), rows[:2])))) is None, "two reads are no loop"
    device = machine(accelerators=("NVIDIA H100",))
    waits = found("synchronous_reads", facts(timed(counted(Reads(), rows[:2])), device))
    assert waits.attacks is Term.SYNC
    assert "NVIDIA H100" in waits.evidence


def test_recompilation_needs_evidence(healthy: Ledger) -> None:
    anew = dataclasses.replace(HEALTHY_LOOK, graphs=5, shapes=5, recompiles=4)
    sick = found("recompilation", facts(healthy, inspection=anew))
    assert "5 shapes of input: the same code was compiled 5 times" in sick.evidence
    once = dataclasses.replace(anew, graphs=2, recompiles=1)
    assert found("recompilation", facts(healthy, inspection=once)) is None
    assert found("recompilation", facts(healthy)) is None


# ---------------------------------------------------------------- compression and fallback


def fake_quantised() -> torch.nn.Module:
    from torch.ao.quantization import FakeQuantize

    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 64, 3), FakeQuantize(), torch.nn.Conv2d(64, 64, 3), FakeQuantize()]
    module = torch.nn.Sequential(*layers)
    module(torch.randn(1, 3, 16, 16))
    return module


def test_fake_quantisation_is_not_int8() -> None:
    sick = found("fake_quantisation", facts(timed(counted(fake_quantised(), IMAGE))))
    assert "2 products and convolutions runs in int8" in sick.evidence
    assert "int8_static" in sick.remedy
    assert found("fake_quantisation", facts(timed(counted(Block(), IMAGE)))) is None
    rounding = Op(name="QuantizeLinear", kind="elementwise", calls=2, flops=9.0, bytes_low=9.0, bytes_high=9.0)
    real = dataclasses.replace(int8_ledger(0.01), ops=(*int8_ledger(0.01).ops, rounding))
    assert found("fake_quantisation", facts(real, execution=Execution(target="onnxruntime"))) is None


def test_zeros_in_dense_kernels(healthy: Ledger) -> None:
    masked = dataclasses.replace(HEALTHY_LOOK, zero_share=0.9, zeros=(("body.weight", 0.95),))
    sick = found("masked_weights", facts(healthy, inspection=masked))
    assert "90% of the weights are exact zeros (body.weight 95%)" in sick.evidence
    assert 0.5 < sick.share <= 0.9
    assert found("masked_weights", facts(healthy, inspection=HEALTHY_LOOK)) is None


def test_fallback_names_what_ran_elsewhere() -> None:
    ledger = int8_ledger(0.01)
    execution = Execution(target="onnxruntime")
    proof = Certificate(eligible=9, converted=8, fallbacks=("Add",), providers=(("CPUExecutionProvider", 12),))
    sick = found("fallback", facts(ledger, execution=execution, certificate=proof))
    assert "1 operators fell back (Add); 8 of 9" in sick.evidence
    assert sick.share == pytest.approx(1e-4 / (0.01 + 1e-4))
    whole = dataclasses.replace(proof, fallbacks=(), converted=9)
    assert found("fallback", facts(ledger, execution=execution, certificate=whole)) is None


def test_a_torch_model_at_its_own_precision_falls_back_from_nothing(healthy: Ledger) -> None:
    proof = Certificate(eligible=3, converted=0, fallbacks=("linear 4x64,10x64 (bfloat16)",))
    assert found("fallback", facts(healthy, certificate=proof)) is None
    cast = facts(healthy, execution=Execution(precision="bf16"), certificate=proof)
    assert found("fallback", cast) is not None
