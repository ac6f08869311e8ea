"""int8_dynamic: products become integer products; a network of convolutions is refused and told why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_workload as work
import pytest

from ironlaw.contracts import No
from ironlaw.levers.algorithm.int8_dynamic import Int8Dynamic, Int8DynamicSettings
from ironlaw.records import Goal, Objective, UserError
from ironlaw.targets.onnxruntime import OnnxRuntime

LEVER = Int8Dynamic()
FAST = {
    ("onnxruntime", "matmul", "fp32"): 1e10,
    ("onnxruntime", "matmul", "int8"): 4e10,
    ("onnxruntime", "conv", "fp32"): 1e10,
    ("onnxruntime", "conv", "int8"): 4e10,
}


def _run(candidate, folder, x):
    session = OnnxRuntime().load(OnnxRuntime().export(candidate, folder))
    return session.fetch(session.call(session.prepare([x])))[0], session.certify()


@pytest.mark.parametrize("fields", [{}, {"per_channel": False}, {"weights": "u8"}, {"reduce_range": True}])
def test_products_run_as_int8_near_the_float_outputs(tmp_path, fields):
    candidate = work.candidate(tmp_path, work.mlp())
    x = np.load(tmp_path / "example.npz")["x"]
    reference, _ = _run(candidate, tmp_path / "float", x)
    quantised, change = LEVER.apply(candidate, Int8DynamicSettings(**fields))
    outputs, certificate = _run(quantised, tmp_path / "int8", x)
    assert work.sqnr_db(reference, outputs) > 25
    assert (certificate.eligible, certificate.converted) == (2, 2)
    assert dict(change.facts)["quantised"] == 2
    assert quantised.execution.target == "onnxruntime"


def test_it_follows_a_range_that_no_calibration_saw(tmp_path):
    """Activations a thousand times larger: static scales would saturate, dynamic ones follow."""
    candidate = work.candidate(tmp_path, work.mlp())
    x = 1000 * np.load(tmp_path / "example.npz")["x"]
    reference, _ = _run(candidate, tmp_path / "float", x)
    outputs, _ = _run(LEVER.apply(candidate, Int8DynamicSettings())[0], tmp_path / "int8", x)
    assert work.sqnr_db(reference, outputs) > 25


def test_convolutions_are_left_and_named(tmp_path):
    quantised, change = LEVER.apply(work.candidate(tmp_path, work.cnn()), Int8DynamicSettings())
    facts = dict(change.facts)
    assert (facts["quantised"], facts["eligible"], facts["left_in_float"]) == (1, 3, "conv1, conv2")
    _, certificate = _run(quantised, tmp_path / "out", np.load(tmp_path / "example.npz")["x"])
    assert certificate.converted == 1


def test_a_network_of_convolutions_is_refused_with_the_reason(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    only = work.diagnosis([work.op("conv", 1e9), work.op("depthwise", 1e8)], 0.1)
    answer = LEVER.applies(candidate, only, work.machine(FAST))
    assert isinstance(answer, No)
    assert "all 2 operators with weights are convolutions" in answer.reason


def test_one_small_product_behind_convolutions_is_refused_with_its_bound(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    mixed = work.diagnosis([work.op("conv", 1e9), work.op("matmul", 1e7)], 0.1)
    answer = LEVER.applies(candidate, mixed, work.machine(FAST))
    assert isinstance(answer, No)
    assert "1 products of 2 operators" in answer.reason
    assert "at most 1.01x" in answer.reason


def test_the_bound_is_amdahls_over_the_products(tmp_path):
    """90 ms of convolutions and 10 ms of products at 4x: 100 / (90 + 2.5)."""
    candidate = work.candidate(tmp_path, work.cnn())
    mixed = work.diagnosis([work.op("conv", 9e8), work.op("matmul", 1e8)], 0.1)
    prediction = LEVER.predict(candidate, Int8DynamicSettings(), mixed, work.machine(FAST))
    assert prediction.speedup.value == pytest.approx(100 / 92.5, rel=0.03)


def test_a_model_without_products_is_a_no_op_and_bad_settings_are_named(tmp_path):
    nodes_only_conv = work.cnn()
    del nodes_only_conv.graph.node[-2:]
    nodes_only_conv.graph.output[0].CopyFrom(
        work.onnx.helper.make_tensor_value_info("p", work.TensorProto.FLOAT, ["batch", 16, 4, 4])
    )
    for name in ("w3", "b3"):
        nodes_only_conv.graph.initializer.remove(next(w for w in nodes_only_conv.graph.initializer if w.name == name))
    _, change = LEVER.apply(work.candidate(tmp_path, nodes_only_conv), Int8DynamicSettings())
    assert change.no_op
    with pytest.raises(UserError, match="weights='int4'"):
        Int8DynamicSettings(weights="int4")


def test_embeddings_shrink_only_when_asked(tmp_path):
    """A table of 1000 x 32 is most of this file: int8 takes it to about a quarter."""
    candidate = work.candidate(tmp_path, work.embedder(), calibration=work.data((8,), batches=2, rows=4))

    def size(embeddings):
        _, change = LEVER.apply(candidate, Int8DynamicSettings(embeddings=embeddings))
        assert dict(change.facts)["quantised"] == 1
        return dict(change.facts)["model_bytes"]

    assert size(False) > 4 * 1000 * 32
    assert size(True) < 0.35 * size(False)
    small = replace(candidate, goal=Goal(objective=Objective.SIZE))
    layer_norm = work.op("norm", 1e5, name="aten.native_layer_norm")
    diagnosis = work.diagnosis([work.op("matmul", 1e9), layer_norm], 0.1)
    assert LEVER.options(small, diagnosis, work.machine(FAST))[0].settings.embeddings
    assert not LEVER.options(candidate, diagnosis, work.machine(FAST))[0].settings.embeddings
