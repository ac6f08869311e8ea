"""int8_static: what the file really holds, hard calibration data, no-ops, refusals with numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_workload as work
import pytest
from onnx import helper, numpy_helper

from ironlaw.contracts import No
from ironlaw.levers.algorithm.int8_static import Int8Static, Int8StaticSettings
from ironlaw.records import Execution, Goal, Objective, UserError
from ironlaw.targets.onnxruntime import OnnxRuntime

LEVER = Int8Static()
FAST = {
    ("onnxruntime", kind, dtype): rate
    for kind in ("conv", "matmul")
    for dtype, rate in (("fp32", 1e10), ("int8", 3e10))
}


def _run(candidate, folder, x):
    session = OnnxRuntime().load(OnnxRuntime().export(candidate, folder))
    return session.fetch(session.call(session.prepare([x])))[0], session.certify()


def _stored(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def _zero_points(candidate):
    graph = onnx.load(candidate.model.path).graph
    values = _stored(candidate.model.path)
    return {values[n.input[2]].dtype.name for n in graph.node if n.op_type == "QuantizeLinear"}


@pytest.mark.parametrize("activation", ["u8", "s8"])
@pytest.mark.parametrize("calibration", ["minmax", "entropy", "percentile"])
def test_the_artefact_runs_int8_kernels_near_the_float_outputs(tmp_path, activation, calibration):
    candidate = work.candidate(tmp_path, work.cnn())
    x = np.load(tmp_path / "example.npz")["x"]
    reference, _ = _run(candidate, tmp_path / "float", x)
    settings = Int8StaticSettings(activation=activation, calibration=calibration)
    quantised, change = LEVER.apply(candidate, settings)
    outputs, certificate = _run(quantised, tmp_path / "int8", x)
    assert work.sqnr_db(reference, outputs) > 20
    assert not np.array_equal(reference, outputs)
    assert (certificate.eligible, certificate.converted, certificate.fallbacks) == (3, 3, ())
    facts = dict(change.facts)
    assert (facts["quantised"], facts["eligible"], facts["calibration_rows"]) == (3, 3, 16)
    assert not change.no_op


def test_it_moves_to_onnxruntime_and_leaves_its_candidate_and_file_alone(tmp_path):
    execution = Execution(target="torch", batch=4, threads=2, options=(("layout", "channels_last"),))
    candidate = work.candidate(tmp_path, work.cnn(), execution=execution)
    before = (tmp_path / "source.onnx").read_bytes()
    quantised, change = LEVER.apply(candidate, Int8StaticSettings())
    assert quantised.execution == Execution(target="onnxruntime", batch=4, threads=2)
    assert candidate.changes == ()
    assert quantised.changes == (change,)
    assert (tmp_path / "source.onnx").read_bytes() == before
    again, same = LEVER.apply(replace(candidate, workspace=str(tmp_path)), Int8StaticSettings())
    assert same == change
    assert again.model.digest == quantised.model.digest


def test_granularity_and_type_are_what_the_file_holds(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())

    def scales(**fields):
        quantised, _ = LEVER.apply(candidate, Int8StaticSettings(**fields))
        stored = _stored(quantised.model.path)
        return stored["w1_scale"], stored["w1_quantized"], _zero_points(quantised)

    channel, weights, zero = scales()
    assert channel.shape == (16,)
    assert zero == {"uint8"}
    assert np.abs(weights).max() == 127
    tensor, weights, zero = scales(per_channel=False, activation="s8")
    assert tensor.shape == ()
    assert zero == {"int8"}
    # symmetric s8, Jacob et al. 2018: scale is the largest magnitude over 127
    np.testing.assert_allclose(tensor, np.abs(work.weights()["w1"]).max() / 127, rtol=1e-2)
    _, weights, _ = scales(reduce_range=True)
    assert np.abs(weights).max() <= 64


def test_per_channel_scales_save_small_channels(tmp_path):
    """Channels of the first layer differ by up to 2**6: one scale for all crushes the small ones."""
    candidate = work.candidate(tmp_path, work.cnn())
    original = work.weights()["w1"]

    def error(per_channel):
        quantised, _ = LEVER.apply(candidate, Int8StaticSettings(per_channel=per_channel))
        stored = _stored(quantised.model.path)
        scale = stored["w1_scale"].reshape(-1, 1, 1, 1)
        small = np.abs(original).max(axis=(1, 2, 3)).argmin()
        back = stored["w1_quantized"] * scale
        return np.abs(back - original)[small].max() / np.abs(original[small]).max()

    assert error(True) < 0.01 < error(False)


def test_a_percentile_cuts_an_outlier_that_minmax_keeps(tmp_path):
    batches = work.data((work.CHANNELS, work.SIDE, work.SIDE), batches=4, rows=8)
    batches[0][0, 0, 0, 0] = 1000.0
    candidate = work.candidate(tmp_path, work.cnn(), calibration=batches)

    def scale(**fields):
        quantised, _ = LEVER.apply(candidate, Int8StaticSettings(**fields))
        return float(_stored(quantised.model.path)["x_scale"])

    assert scale(calibration="minmax") > 1000 / 256
    assert scale(calibration="percentile", percentile=99.0) < scale(calibration="minmax") / 20


@pytest.mark.parametrize("calibration", ["minmax", "entropy", "percentile"])
@pytest.mark.parametrize("kind", ["one sample", "constant", "zeros"])
def test_poor_calibration_data_still_gives_finite_outputs(tmp_path, calibration, kind):
    shape = (work.CHANNELS, work.SIDE, work.SIDE)
    batch = {
        "one sample": work.data(shape, batches=1, rows=1)[0],
        "constant": np.full((4, *shape), 0.5, np.float32),
        "zeros": np.zeros((4, *shape), np.float32),
    }[kind]
    candidate = work.candidate(tmp_path, work.cnn(), calibration=[batch])
    quantised, change = LEVER.apply(candidate, Int8StaticSettings(calibration=calibration))
    outputs, _ = _run(quantised, tmp_path / "out", np.load(tmp_path / "example.npz")["x"])
    assert np.isfinite(outputs).all()
    assert dict(change.facts)["calibration_rows"] == len(batch)


def test_a_dead_channel_stays_dead(tmp_path):
    """A channel with zero weights and bias gives exactly zero, whatever its scale became."""
    values = work.weights()
    values["w1"][5], values["b1"][5] = 0.0, 0.0
    values["w3"].reshape(16, 16, work.CLASSES)[[c for c in range(16) if c != 5]] = 0.0
    candidate = work.candidate(tmp_path, work.cnn(values=values))
    quantised, _ = LEVER.apply(candidate, Int8StaticSettings())
    outputs, _ = _run(quantised, tmp_path / "out", np.load(tmp_path / "example.npz")["x"])
    assert np.isfinite(outputs).all()
    step = np.ptp(np.append(values["b3"], 0)) / 255
    np.testing.assert_allclose(outputs, np.broadcast_to(values["b3"], outputs.shape), atol=step)


def test_rows_bound_the_calibration_and_a_fixed_batch_repeats_short_batches(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    _, change = LEVER.apply(candidate, Int8StaticSettings(rows=5))
    assert dict(change.facts)["calibration_rows"] == 8
    short = work.data((work.CHANNELS, work.SIDE, work.SIDE), batches=2, rows=3)
    fixed = work.candidate(tmp_path / "fixed", work.cnn(batch=4), calibration=short)
    _, change = LEVER.apply(fixed, Int8StaticSettings())
    assert dict(change.facts)["quantised"] == 3


def test_bad_calibration_is_an_error_that_names_the_batch(tmp_path):
    batches = work.data((work.CHANNELS, work.SIDE, work.SIDE), batches=2, rows=4)
    batches[1][0, 0, 0, 0] = np.nan
    with pytest.raises(UserError, match="calibration batch 1"):
        LEVER.apply(work.candidate(tmp_path, work.cnn(), calibration=batches), Int8StaticSettings())
    with pytest.raises(UserError, match="no batches"):
        LEVER.apply(work.candidate(tmp_path / "none", work.cnn(), calibration=[]), Int8StaticSettings())
    with pytest.raises(UserError, match="calibration='best'"):
        Int8StaticSettings(calibration="best")


def test_nothing_to_quantise_is_a_no_op(tmp_path):
    proto = work.model([helper.make_node("Relu", ["x"], ["y"], name="r")], {}, {"x": ["batch", 8]}, {"y": ["batch", 8]})
    _, change = LEVER.apply(work.candidate(tmp_path, proto), Int8StaticSettings())
    assert change.no_op
    assert dict(change.facts)["quantised"] == 0


def test_weighted_scope_leaves_products_of_activations_in_float(tmp_path):
    rng = np.random.default_rng(0)
    values = {"w": (rng.standard_normal((16, 16)) / 4).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="const"),
        helper.make_node("Transpose", ["h"], ["t"], name="t", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["h", "t"], ["y"], name="scores"),
    ]
    proto = work.model(nodes, values, {"x": ["batch", 6, 16]}, {"y": ["batch", 6, 6]})
    batches = work.data((6, 16), batches=2, rows=4)
    candidate = work.candidate(tmp_path, proto, calibration=batches)
    x = np.load(tmp_path / "example.npz")["x"]

    def ran(scope):
        quantised, _ = LEVER.apply(candidate, Int8StaticSettings(scope=scope))
        return _run(quantised, tmp_path / scope, x)[1].evidence[0]

    assert "2 QLinearMatMul" in ran("all")
    assert " MatMul" in ran("weighted")


# ---------------------------------------------------------------- decisions


def test_prediction_is_the_ratio_of_rates_for_a_run_of_convolutions(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    diagnosis = work.diagnosis([work.op("conv", 1e9)], 0.1)
    prediction = LEVER.predict(candidate, Int8StaticSettings(), diagnosis, work.machine(FAST))
    assert prediction.speedup.low < 3.0 < prediction.speedup.high
    assert prediction.speedup.value == pytest.approx(3.0, rel=0.05)
    assert LEVER.applies(candidate, diagnosis, work.machine(FAST))


def test_it_refuses_with_numbers_where_int8_kernels_are_slower(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    diagnosis = work.diagnosis([work.op("conv", 1e9)], 0.1)
    slow = {("onnxruntime", "conv", "fp32"): 3e10, ("onnxruntime", "conv", "int8"): 2e10}
    answer = LEVER.applies(candidate, diagnosis, work.machine(slow))
    assert isinstance(answer, No)
    assert "int8 conv reaches 20 GFLOP/s against 30" in answer.reason
    for objective in (Objective.SIZE, Objective.MEMORY, Objective.ENERGY):
        assert LEVER.applies(replace(candidate, goal=Goal(objective=objective)), diagnosis, work.machine(slow))


def test_it_refuses_a_model_without_weights_in_float(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    answer = LEVER.applies(candidate, work.diagnosis([work.op("conv", 1e9, dtype="int8")], 0.1), work.machine(FAST))
    assert isinstance(answer, No)
    assert "no convolution or matrix product" in answer.reason


def test_for_size_the_gain_is_the_share_of_weights_that_shrink(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    snapshot = replace(candidate.snapshot, weights_bytes=100_000)
    candidate = replace(candidate, snapshot=snapshot, goal=Goal(objective=Objective.SIZE))
    diagnosis = work.diagnosis([work.op("conv", 1e9, weights_bytes=8e4)], 0.1)
    prediction = LEVER.predict(candidate, Int8StaticSettings(), diagnosis, work.machine(FAST))
    assert prediction.speedup.value == pytest.approx(100 / (20 + 80 / 4))
    assert prediction.size_bytes.value == pytest.approx(40_000)


def test_the_order_of_tries_follows_the_instruction_set_and_the_kind_of_model(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    convolutions = work.diagnosis([work.op("conv", 1e9)], 0.1)
    attention = work.diagnosis([work.op("matmul", 1e9), work.op("norm", 1e5, name="aten.native_layer_norm")], 0.1)
    new, old = work.machine(FAST), work.machine(FAST, isa=("avx2",))
    first = LEVER.options(candidate, convolutions, new)[0].settings
    assert (first.activation, first.scope, first.reduce_range) == ("u8", "all", False)
    assert LEVER.options(candidate, attention, new)[0].settings.scope == "weighted"
    tries = [o.settings for o in LEVER.options(candidate, convolutions, old)]
    assert tries[0].activation == "s8"
    assert all(s.reduce_range for s in tries if s.activation == "u8")
    risky = LEVER.predict(candidate, Int8StaticSettings(activation="u8"), convolutions, old)
    assert "no VNNI" in risky.basis
    assert len(set(tries)) == len(tries)


def test_embeddings_shrink_only_when_asked(tmp_path):
    """A table of 1000 x 32 is most of this file: int8 takes it to about a quarter."""
    candidate = work.candidate(tmp_path, work.embedder(), calibration=work.data((8,), batches=2, rows=4))

    def size(embeddings):
        _, change = LEVER.apply(candidate, Int8StaticSettings(scope="weighted", embeddings=embeddings))
        assert dict(change.facts)["quantised"] == 1
        return dict(change.facts)["model_bytes"]

    assert size(False) > 4 * 1000 * 32
    assert size(True) < 0.35 * size(False)
    small = replace(candidate, goal=Goal(objective=Objective.SIZE))
    layer_norm = work.op("norm", 1e5, name="aten.native_layer_norm")
    diagnosis = work.diagnosis([work.op("matmul", 1e9), layer_norm], 0.1)
    assert LEVER.options(small, diagnosis, work.machine(FAST))[0].settings.embeddings
    assert not LEVER.options(candidate, diagnosis, work.machine(FAST))[0].settings.embeddings
