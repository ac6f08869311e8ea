"""bf16_openvino: refused by the measured rate, not by a flag alone; it changes the execution and nothing else."""

from __future__ import annotations

from dataclasses import replace

import onnx_workload as work
import pytest

from ironlaw.contracts import No
from ironlaw.levers.algorithm.bf16_openvino import Bf16OpenVino, Bf16OpenVinoSettings
from ironlaw.records import Ceiling, Execution, Goal, Objective

LEVER = Bf16OpenVino()
DIAGNOSIS = work.diagnosis([work.op("conv", 1e9)], 0.1, target="openvino")


def _rates(fp32, bf16):
    return {("openvino", "conv", "fp32"): fp32, ("openvino", "conv", "bf16"): bf16}


def _peak(dtype, value):
    return Ceiling(name="matmul", unit="FLOP/s", value=value, low=value, high=value, dtype=dtype)


def test_it_is_predicted_from_the_rates_of_its_own_kernels(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn(), execution=Execution(target="openvino", batch=4))
    prediction = LEVER.predict(candidate, Bf16OpenVinoSettings(), DIAGNOSIS, work.machine(_rates(1e10, 2e10)))
    assert prediction.speedup.value == pytest.approx(2.0, rel=0.05)
    assert LEVER.applies(candidate, DIAGNOSIS, work.machine(_rates(1e10, 2e10)))


def test_it_is_refused_by_the_rate_even_where_the_flag_is_there(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    machine = work.machine(_rates(3e10, 1e10), isa=("avx512_bf16",))
    answer = LEVER.applies(candidate, DIAGNOSIS, machine)
    assert isinstance(answer, No)
    assert "conv 10 against 30 GFLOP/s" in answer.reason


def test_without_rates_the_ceiling_decides_and_without_that_the_flag(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    bare = work.machine({}, isa=("avx2",))
    answer = LEVER.applies(candidate, DIAGNOSIS, bare)
    assert isinstance(answer, No)
    assert "none of" in answer.reason
    emulated = replace(bare, ceilings=(_peak("fp32", 4e10), _peak("bf16", 1e9)))
    answer = LEVER.applies(candidate, DIAGNOSIS, emulated)
    assert isinstance(answer, No)
    assert "1 against 40 GFLOP/s" in answer.reason
    assert LEVER.applies(candidate, DIAGNOSIS, replace(bare, ceilings=(_peak("fp32", 4e10), _peak("bf16", 9e10))))


def test_it_does_not_pretend_to_save_size(tmp_path):
    candidate = replace(work.candidate(tmp_path, work.cnn()), goal=Goal(objective=Objective.SIZE))
    assert isinstance(LEVER.applies(candidate, DIAGNOSIS, work.machine(_rates(1e10, 2e10))), No)


def test_it_sets_the_precision_and_moves_there(tmp_path):
    execution = Execution(target="onnxruntime", batch=4, threads=2, options=(("spinning", False),))
    candidate = work.candidate(tmp_path, work.cnn(), execution=execution)
    after, change = LEVER.apply(candidate, Bf16OpenVinoSettings())
    assert after.execution == Execution(target="openvino", batch=4, threads=2, precision="bf16")
    assert after.model == candidate.model
    assert set(change.claims) == {"target", "compiler", "layout", "compute.dtype"}
    _, again = LEVER.apply(after, Bf16OpenVinoSettings())
    assert again.no_op
    assert list(LEVER.options(after, DIAGNOSIS, work.machine({}))) == []
