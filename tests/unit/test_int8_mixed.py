"""int8_mixed: planted bad layers are found and spared, what that restores, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_workload as work
import pytest
from onnx import helper

from ironlaw.contracts import No
from ironlaw.levers import _mixed_forecast, _sensitivity
from ironlaw.levers.algorithm.int8_mixed import Int8Mixed, Int8MixedSettings
from ironlaw.levers.algorithm.int8_static import Int8Static, Int8StaticSettings
from ironlaw.records import Goal, Objective, UserError
from ironlaw.targets.onnxruntime import OnnxRuntime

LEVER = Int8Mixed()
WIDTH, DEPTH = 32, 5
FAST = {
    ("onnxruntime", kind, dtype): rate
    for kind in ("conv", "matmul")
    for dtype, rate in (("fp32", 1e10), ("int8", 4e10))
}


def _deep(bad: int | None = None, seed: int = 5) -> onnx.ModelProto:
    """Products with Relu between; in layer ``bad`` one channel is 300 times as wide and always ends below zero.

    The Relu after it hides the channel from the layers that follow, so that only its own scale suffers.
    """
    rng = np.random.default_rng(seed)
    values, nodes, name = {}, [], "x"
    for i in range(DEPTH):
        weight = rng.standard_normal((WIDTH, WIDTH)) * np.sqrt(2 / WIDTH)
        if i == bad:
            weight[:, 0] = -300 * np.abs(weight[:, 0])
        values[f"w{i}"] = weight.astype(np.float32)
        last = i == DEPTH - 1
        nodes.append(helper.make_node("MatMul", [name, f"w{i}"], ["y" if last else f"h{i}"], name=f"mm{i}"))
        if not last:
            nodes.append(helper.make_node("Relu", [f"h{i}"], [f"r{i}"], name=f"relu{i}"))
        name = f"r{i}"
    return work.model(nodes, values, {"x": ["batch", WIDTH]}, {"y": ["batch", WIDTH]})


def _candidate(folder: Path, proto: onnx.ModelProto | None = None, **fields):
    batches = fields.pop("calibration", work.data((WIDTH,), batches=4, rows=16))
    return work.candidate(folder, proto or _deep(bad=2), calibration=batches, **fields)


def _outputs(candidate, folder, x):
    session = OnnxRuntime().load(OnnxRuntime().export(candidate, folder))
    return session.fetch(session.call(session.prepare([x])))[0], session.certify()


def _ranking(candidate):
    return json.loads((Path(candidate.workspace) / "sensitivity.json").read_text())


@pytest.mark.parametrize("fields", [{}, {"base": "dynamic"}], ids=["static", "dynamic"])
def test_a_layer_with_one_wide_channel_is_found_and_sparing_it_restores_20_db(tmp_path, fields):
    candidate = _candidate(tmp_path)
    x = np.load(tmp_path / "example.npz")["x"]
    reference, _ = _outputs(candidate, tmp_path / "float", x)
    quantised, change = LEVER.apply(candidate, Int8MixedSettings(per_channel=False, **fields))
    facts = dict(change.facts)
    assert facts["spared"] == facts["worst"] == facts["left_in_float"] == "mm2"
    assert (facts["quantised"], facts["eligible"], facts["layers"]) == (DEPTH - 1, DEPTH, DEPTH)
    assert facts["sqnr_db"] > facts["whole_sqnr_db"] + 20
    outputs, certificate = _outputs(quantised, tmp_path / "int8", x)
    assert work.sqnr_db(reference, outputs) > 25
    assert (certificate.eligible, certificate.converted) == (DEPTH, DEPTH - 1)
    assert not change.no_op


def test_an_input_with_one_wide_feature_is_found_whatever_the_granularity_of_weights(tmp_path):
    """The first layer does not read the feature, and its input's scale has to span it all the same."""
    proto = _deep()
    weight = np.array(onnx.numpy_helper.to_array(proto.graph.initializer[0]))
    weight[3] = 0
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w0"))
    batches = work.data((WIDTH,), batches=4, rows=16)
    for batch in batches:
        batch[:, 3] *= 1000
    _, change = LEVER.apply(_candidate(tmp_path, proto, calibration=batches), Int8MixedSettings())
    facts = dict(change.facts)
    assert facts["spared"] == "mm0"
    assert facts["whole_sqnr_db"] < 10 < 25 < facts["sqnr_db"]


def test_alone_is_what_the_quantiser_does_to_that_layer_only(tmp_path):
    """Against an oracle in numpy: weights symmetric by tensor, inputs u8 over the calibrated range with zero."""
    candidate = _candidate(tmp_path, work.mlp(), calibration=work.data((64,), batches=2, rows=8))
    LEVER.apply(candidate, Int8MixedSettings(per_channel=False))
    found = {one["name"]: one["error"] for one in _ranking(candidate)}
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in work.mlp().graph.initializer}
    x = np.concatenate(work.data((64,), batches=2, rows=8))
    hidden = np.maximum(x @ stored["a"], 0)
    exact = hidden @ stored["b"]
    first = np.maximum(_activation(x) @ _weight(stored["a"]), 0) @ stored["b"]
    second = _activation(hidden) @ _weight(stored["b"])
    for name, other in (("mm1", first), ("mm2", second)):
        assert found[name] == pytest.approx(((exact - other) ** 2).sum() / (exact**2).sum(), rel=0.05)


def _weight(w: np.ndarray) -> np.ndarray:
    scale = np.abs(w).max() / 127
    return np.round(w / scale) * scale


def _activation(x: np.ndarray) -> np.ndarray:
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    scale = (high - low) / 255
    zero = np.round(-low / scale)
    return (np.clip(np.round(x / scale) + zero, 0, 255) - zero) * scale


def test_the_ranking_names_every_layer_once_and_is_the_same_twice(tmp_path):
    candidate = _candidate(tmp_path)
    source = (tmp_path / "source.onnx").read_bytes()
    first, change = LEVER.apply(candidate, Int8MixedSettings(spare=2, per_channel=False))
    ranking = _ranking(candidate)
    again, same = LEVER.apply(
        replace(candidate, workspace=str(tmp_path)), Int8MixedSettings(spare=2, per_channel=False)
    )
    assert (change, first.model.digest) == (same, again.model.digest)
    assert ranking == _ranking(again)
    assert (tmp_path / "source.onnx").read_bytes() == source
    assert candidate.changes == ()
    assert {one["name"] for one in ranking} == {f"mm{i}" for i in range(DEPTH)}
    assert [one["rank"] for one in ranking] == [1, 2, 3, 4, 5]
    assert all(one["weight_bytes"] == 4 * WIDTH**2 and one["measured_with"] == 1 for one in ranking)
    assert [one["error"] for one in ranking] == sorted((one["error"] for one in ranking), reverse=True)
    assert dict(change.facts)["spared"] == ", ".join(one["name"] for one in ranking[:2])


@pytest.mark.parametrize("spare", [DEPTH, 99])
def test_sparing_every_layer_is_a_no_op(tmp_path, spare):
    _, change = LEVER.apply(_candidate(tmp_path), Int8MixedSettings(spare=spare))
    assert change.no_op
    assert (dict(change.facts)["quantised"], dict(change.facts)["layers"]) == (0, DEPTH)


def test_convolutions_and_a_fixed_batch_are_ranked_too(tmp_path):
    short = work.data((work.CHANNELS, work.SIDE, work.SIDE), batches=2, rows=3)
    candidate = work.candidate(tmp_path, work.cnn(batch=4), calibration=short)
    _, change = LEVER.apply(candidate, Int8MixedSettings())
    assert {one["op"] for one in _ranking(candidate)} == {"Conv", "Gemm"}
    assert dict(change.facts)["quantised"] == 2


def test_a_gemm_is_spared_by_the_dynamic_quantiser_too(tmp_path):
    """ORT makes a product of it before it looks at names."""
    rng = np.random.default_rng(2)
    values = {f"w{i}": rng.standard_normal((16, 16)).astype(np.float32) for i in range(3)}
    names = ["x", "a", "b", "y"]
    nodes = [helper.make_node("Gemm", [names[i], f"w{i}"], [names[i + 1]], name=f"g{i}") for i in range(3)]
    proto = work.model(nodes, values, {"x": ["batch", 16]}, {"y": ["batch", 16]})
    candidate = work.candidate(tmp_path, proto, calibration=work.data((16,), batches=2, rows=8))
    _, change = LEVER.apply(candidate, Int8MixedSettings(base="dynamic"))
    facts = dict(change.facts)
    assert (facts["quantised"], facts["layers"]) == (2, 3)
    assert facts["left_in_float"] == facts["spared"]
    assert all(0 < one["error"] < 0.1 for one in _ranking(candidate))


def test_nan_is_refused_in_data_and_in_outputs(tmp_path):
    batches = work.data((WIDTH,), batches=2, rows=4)
    batches[1][0, 0] = np.nan
    with pytest.raises(UserError, match="calibration batch 1"):
        LEVER.apply(_candidate(tmp_path, calibration=batches), Int8MixedSettings())
    with pytest.raises(UserError, match="calibration batch 1"):
        LEVER.apply(_candidate(tmp_path / "dynamic", calibration=batches), Int8MixedSettings(base="dynamic"))
    proto = _deep()
    proto.graph.node[-1].output[0] = "h"
    proto.graph.node.append(helper.make_node("Sqrt", ["h"], ["y"], name="root"))
    with pytest.raises(UserError, match="float model gives NaN"):
        LEVER.apply(_candidate(tmp_path / "root", proto), Int8MixedSettings(base="dynamic"))
    with pytest.raises(UserError, match="no batches"):
        LEVER.apply(_candidate(tmp_path / "none", calibration=[]), Int8MixedSettings())


@pytest.mark.parametrize("fields", [{"spare": 0}, {"base": "both"}, {"calibration": "best"}, {"scope": "none"}])
def test_settings_that_make_no_sense_are_refused(fields):
    with pytest.raises(UserError, match=next(iter(fields))):
        Int8MixedSettings(**fields)


# ---------------------------------------------------------------- ranking


def test_a_deep_net_is_ranked_within_the_limit_and_its_worst_layers_are_right():
    """Noise adds up: with 200 layers and 60 measurements the five that stand out must come first, alone."""
    rng = np.random.default_rng(0)
    errors = {f"n{i}": float(e) for i, e in enumerate(rng.uniform(1e-6, 1e-5, 200))}
    worst = {"n13": 0.5, "n14": 0.4, "n99": 0.3, "n160": 0.2, "n199": 0.1}
    errors |= worst
    calls = []

    def error(names: list[str]) -> float:
        calls.append(names)
        return sum(errors[name] for name in names)

    layers = [_sensitivity.Layer(name=name, op="MatMul", weight_bytes=4) for name in errors]
    found = _sensitivity.rank(layers, error)
    assert len(calls) <= _sensitivity.LIMIT
    assert [one.name for one in found[:5]] == list(worst)
    assert {one.measured_with for one in found[:5]} == {1}
    assert sorted(one.name for one in found) == sorted(errors)


def test_equal_layers_keep_the_order_of_the_graph():
    layers = [_sensitivity.Layer(name=name, op="Conv", weight_bytes=4) for name in "cab"]
    assert [one.name for one in _sensitivity.rank(layers, lambda _: 0.1)] == ["c", "a", "b"]
    assert _sensitivity.decibel(0.01) == pytest.approx(20.0)
    assert _sensitivity.decibel(0.0) is None


# ---------------------------------------------------------------- decisions


def _convolutions(count: int):
    return work.diagnosis([work.op("conv", 1e8, name=f"c{i}") for i in range(count)], 0.1)


def test_the_ladder_ends_under_half_and_its_rungs_are_alike(tmp_path):
    candidate = _candidate(tmp_path)
    options = LEVER.options(candidate, _convolutions(17), work.machine(FAST))
    assert [o.settings.spare for o in options] == [1, 2, 4, 8]
    assert {o.alike for o in options} == {"static all"}
    assert {o.settings.base for o in options} == {"static"}
    products = work.diagnosis([work.op("matmul", 1e8, name=f"m{i}") for i in range(4)], 0.1)
    both = [(o.settings.base, o.settings.spare) for o in LEVER.options(candidate, products, work.machine(FAST))]
    assert both == [("dynamic", 1), ("static", 1)]


def test_more_layers_cost_more_to_try_until_they_are_measured_in_groups(tmp_path):
    candidate = _candidate(tmp_path)
    costs = [LEVER.options(candidate, _convolutions(n), work.machine(FAST))[0].cost_s for n in (3, 30, 60, 600)]
    assert costs[0] < costs[1] < costs[2] == costs[3]


def test_too_few_layers_are_refused(tmp_path):
    answer = LEVER.applies(_candidate(tmp_path), _convolutions(2), work.machine(FAST))
    assert isinstance(answer, No)
    assert "2 layers" in answer.reason
    none = LEVER.applies(_candidate(tmp_path), work.diagnosis([work.op("norm", 1e6)], 0.1), work.machine(FAST))
    assert isinstance(none, No)
    assert LEVER.applies(_candidate(tmp_path), _convolutions(3), work.machine(FAST))


def test_the_forecast_is_amdahls_over_equal_layers(tmp_path):
    """Int8 is 4x: with 2 of 8 equal layers in float 1 / (2/8 + 6/8 / 4) = 2.29x, and less with 3."""
    candidate = _candidate(tmp_path)

    def gain(spare):
        return LEVER.predict(candidate, Int8MixedSettings(spare=spare), _convolutions(8), work.machine(FAST)).speedup

    whole = Int8Static().predict(candidate, Int8StaticSettings(), _convolutions(8), work.machine(FAST)).speedup
    assert gain(2).value == pytest.approx(1 / (0.25 + 0.75 / 4), rel=0.05)
    assert whole.value > gain(1).value > gain(2).value > gain(3).value


def test_unequal_layers_widen_the_forecast():
    ops = [work.op("conv", 1e6), work.op("conv", 1e6, name="b"), work.op("conv", 8e6, name="c")]
    spared = _mixed_forecast.share(ops, 1, lambda op: op.flops)
    assert (spared.low, spared.value, spared.high) == pytest.approx((0.1, 1 / 3, 0.8))


def test_spared_weights_stay_as_wide_for_size(tmp_path):
    candidate = _candidate(tmp_path)
    snapshot = replace(candidate.snapshot, weights_bytes=160_000)
    candidate = replace(candidate, snapshot=snapshot, goal=Goal(objective=Objective.SIZE))
    prediction = LEVER.predict(candidate, Int8MixedSettings(), _convolutions(4), work.machine(FAST))
    assert prediction.size_bytes.value == pytest.approx(160_000 * (1 / 4 + 3 / 16), rel=0.01)
    assert prediction.speedup.value == pytest.approx(1 / (1 / 4 + 3 / 16), rel=0.01)
