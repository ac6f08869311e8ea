"""weight_only_openvino: widths are counted and certified, values are group-wise rounding, what stays wider is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_workload as work
import pytest
from onnx import helper

from ironlaw import forms
from ironlaw.contracts import No
from ironlaw.levers.algorithm.weight_only_openvino import WeightOnlyOpenVino, WeightOnlyOpenVinoSettings
from ironlaw.records import Ceiling, Execution, Goal, Objective, UserError
from ironlaw.targets import _artefacts
from ironlaw.targets.openvino import OpenVino

for _package in ("openvino", "nncf"):
    pytest.importorskip(_package, reason="needs the openvino extra: pip install 'ironlaw[openvino]'")
pytestmark = pytest.mark.openvino

LEVER = WeightOnlyOpenVino()
RATE, STREAM = 1e11, 1e10


def _wide(**weights):
    rng = np.random.default_rng(5)
    values = {
        "a": (rng.standard_normal((256, 128)) / 16).astype(np.float32),
        "b": (rng.standard_normal((128, 128)) / 11).astype(np.float32),
        "c": (rng.standard_normal((128, 16)) / 11).astype(np.float32),
        **weights,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "b"], ["g"], name="second"),
        helper.make_node("Relu", ["g"], ["s"], name="relu2"),
        helper.make_node("MatMul", ["s", "c"], ["y"], name="last"),
    ]
    return work.model(nodes, values, {"x": ["batch", 256]}, {"y": ["batch", 16]})


def _candidate(folder, proto=None):
    execution = Execution(target="openvino", batch=4, threads=1)
    return forms.convert(work.candidate(folder, proto or _wide(), execution=execution), "openvino")


def _run(candidate, folder):
    artefact = OpenVino().export(candidate, folder)
    session = OpenVino().load(artefact)
    native = session.prepare(_artefacts.example_arrays(artefact))
    (outputs,) = session.fetch(session.call(native))
    return outputs, session.certify(), session.profile(native, 2)


@pytest.mark.parametrize(
    ("fields", "four", "least_db"),
    [
        ({}, 0, 30),
        ({"mode": "int8_asym"}, 0, 30),
        ({"compute": "float"}, 0, 35),
        ({"mode": "int4_asym"}, 2, 14),
        ({"mode": "int4_sym", "group": 32, "all_layers": True}, 3, 12),
        ({"mode": "int4_asym", "group": 128, "ratio": 0.5}, 1, 14),
    ],
)
def test_widths_are_counted_certified_and_near_float(tmp_path, fields, four, least_db):
    candidate = _candidate(tmp_path)
    before = Path(candidate.model.path).with_suffix(".bin").read_bytes()
    reference, _, _ = _run(candidate, tmp_path / "float")
    after, change = LEVER.apply(candidate, WeightOnlyOpenVinoSettings(**fields))
    outputs, certificate, narrow = _run(after, tmp_path / "packed")
    facts = dict(change.facts)
    assert (facts["layers_int4"], facts["layers_int8"]) == (four, 3 - four)
    assert work.sqnr_db(reference, outputs) > least_db
    assert facts["sqnr_db"] == pytest.approx(work.sqnr_db(reference, outputs), abs=0.3)
    assert (certificate.eligible, certificate.converted, certificate.fallbacks) == (3, 3, ())
    said = [precision for _, precision in certificate.precisions]
    assert said.count("int4 weights, float32") == four
    assert said.count("int8 weights, float32") == 3 - four
    rounding = "0" if fields.get("compute") == "float" else "32"
    assert f"DYNAMIC_QUANTIZATION_GROUP_SIZE={rounding}" in certificate.evidence[2]
    weights = 256 * 128 + 128 * 128 + 128 * 16
    assert 0.5 * weights <= sum(op.weights_bytes for op in narrow if op.kind == "matmul") < 1.25 * weights
    assert sum(op.flops for op in narrow if op.kind == "matmul") == 2 * 4 * weights
    assert Path(candidate.model.path).with_suffix(".bin").read_bytes() == before
    if four and four < 3:
        assert facts["kept_at_int8"]


def test_int4_values_are_group_wise_rounding(tmp_path):
    """Every unpacked weight lies within half a step of its own, a group's step being its range over 15."""
    import openvino

    after, _ = LEVER.apply(_candidate(tmp_path), WeightOnlyOpenVinoSettings(mode="int4_asym", all_layers=True))
    model = openvino.Core().read_model(after.model.path)
    (first,) = [
        op for op in model.get_ops() if op.get_type_name() == "MatMul" and op.input_value(0).get_node().get_type_name()
        == "Parameter"
    ]  # fmt: skip
    unpacked = openvino.Model([first.input_value(1)], [], "weight")
    values = openvino.Core().compile_model(unpacked, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([])[0]
    weight = next(w for w in _wide().graph.initializer if w.name == "a")
    weight = work.numpy_helper.to_array(weight)
    values = values.T if first.get_attributes()["transpose_b"] else values
    groups = weight.reshape(4, 64, 128)
    step = (np.maximum(groups.max(1), 0) - np.minimum(groups.min(1), 0)) / 15
    wrong = np.abs(values.reshape(4, 64, 128) - groups)
    assert (wrong <= 0.5 * step[:, None] * 1.01 + 0.5 * step[:, None] * 0.1 + 1e-3).all()


def test_a_replay_gives_the_same_digest_and_size_is_as_predicted(tmp_path):
    candidate = _candidate(tmp_path)
    total = 4 * (256 * 128 + 128 * 128 + 128 * 16)
    candidate = replace(
        candidate, goal=Goal(objective=Objective.SIZE), snapshot=replace(candidate.snapshot, weights_bytes=total)
    )
    ops = [
        replace(work.op("matmul", 1e6, weights_bytes=4.0 * k * n), shape=f"4x{k},{k}x{n}")
        for k, n in ((256, 128), (128, 128), (128, 16))
    ]
    for mode in ("int8_sym", "int4_asym"):
        chosen, digests = WeightOnlyOpenVinoSettings(mode=mode), []
        predicted = LEVER.predict(candidate, chosen, work.diagnosis(ops, 0.1), _machine()).size_bytes
        for place in ("once", "twice"):
            (tmp_path / f"{mode} {place}").mkdir()
            after, change = LEVER.apply(replace(candidate, workspace=str(tmp_path / f"{mode} {place}")), chosen)
            digests.append(after.model.digest)
        assert predicted.low <= dict(change.facts)["weights_bytes"] <= predicted.high
        assert digests[0] == digests[1]


def test_what_is_too_narrow_stays_and_is_named(tmp_path):
    _, change = LEVER.apply(_candidate(tmp_path / "a", work.cnn()), WeightOnlyOpenVinoSettings(group=128))
    assert not change.no_op
    thin = {"a": np.ones((256, 16), np.float32), "b": np.ones((16, 16), np.float32), "c": np.ones((16, 16), np.float32)}
    _, change = LEVER.apply(_candidate(tmp_path / "b", _wide(**thin)), WeightOnlyOpenVinoSettings())
    facts = dict(change.facts)
    assert (facts["quantised"], facts["eligible"]) == (1, 3)
    assert len(facts["left_in_float"].split(", ")) == 2
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="r")]
    nothing = work.model(nodes, {}, {"x": ["batch", 8]}, {"y": ["batch", 8]})
    assert LEVER.apply(_candidate(tmp_path / "c", nothing), WeightOnlyOpenVinoSettings())[1].no_op


def test_bad_weights_and_settings_are_named(tmp_path):
    bad = np.ones((256, 128), np.float32)
    bad[3, 4] = np.inf
    with pytest.raises(UserError, match=r"weight 'a'.*NaN or Inf"):
        LEVER.apply(_candidate(tmp_path, _wide(a=bad)), WeightOnlyOpenVinoSettings())
    for fields, words in (({"mode": "nf4"}, "mode='nf4'"), ({"group": 7}, "group=7"), ({"ratio": 1.5}, "ratio=1.5")):
        with pytest.raises(UserError, match=words):
            WeightOnlyOpenVinoSettings(**fields)


def _machine(narrow=1.0):
    made = work.machine({("openvino", "matmul", "fp32"): RATE, ("openvino", "matmul", "int8"): narrow * RATE})
    return replace(made, ceilings=(Ceiling(name="dram", unit="B/s", value=STREAM, low=STREAM, high=STREAM),))


def _products(batch, size=1024):
    one = replace(
        work.op("matmul", 2.0 * batch * size * size, weights_bytes=4.0 * size * size),
        shape=f"{batch}x{size},{size}x{size}", bytes_high=4.0 * (size * size + 2 * batch * size),
    )  # fmt: skip
    found = work.diagnosis([one], max(one.flops / RATE, one.weights_bytes / STREAM), target="openvino")
    return replace(found, ledger=replace(found.ledger, batch=batch))


def test_the_gain_falls_with_the_batch_and_the_refusal_says_so(tmp_path):
    candidate, chosen = _candidate(tmp_path), WeightOnlyOpenVinoSettings(mode="int4_asym")
    found = [LEVER.predict(candidate, chosen, _products(b), _machine()) for b in (1, 16, 512)]
    assert found[0].speedup.value > found[1].speedup.value > found[2].speedup.value - 0.1
    assert found[0].speedup.value > 3
    assert found[2].speedup.value < 1
    assert "pays up to batch" in found[0].basis
    assert "nncf keeps the last layer" in found[0].basis
    answer = LEVER.applies(candidate, _products(4096), _machine(0.5))
    assert isinstance(answer, No)
    assert "at batch 4096: at most" in answer.reason
    only = LEVER.applies(candidate, work.diagnosis([work.op("conv", 1e9)], 0.1), _machine())
    assert isinstance(only, No)
    assert "no linear layer" in only.reason
