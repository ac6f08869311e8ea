"""weight_only: stored values against group-wise rounding, sizes, and a gain that falls as the batch grows."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx_workload as work
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from ironlaw.contracts import No, Yes
from ironlaw.laws.intensity import packed_rows
from ironlaw.levers import _weight_only
from ironlaw.levers._weight_only import Kernel
from ironlaw.levers.algorithm.weight_only import WeightOnly, WeightOnlySettings
from ironlaw.measure.ledger_onnx import count_onnx
from ironlaw.records import Ceiling, Goal, Objective, UserError, exactly
from ironlaw.targets.onnxruntime import OnnxRuntime

LEVER = WeightOnly()
FOUR = {"bits": 4, "symmetric": False}
RATE, STREAM = 1e11, 1e10


def _wide(inner=256, outer=128, **weights):
    """MatMul, Relu, a Gemm with everything that a Gemm can have, and a layer narrower than any group."""
    rng = np.random.default_rng(5)
    values = {
        "a": (rng.standard_normal((inner, outer)) / 16).astype(np.float32),
        "b": (rng.standard_normal((16, outer)) / 11).astype(np.float32),
        "bias": rng.standard_normal(16).astype(np.float32),
        "c": (rng.standard_normal((16, work.CLASSES)) / 4).astype(np.float32),
        **weights,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Gemm", ["r", "b", "bias"], ["g"], name="second", transB=1, alpha=0.5, beta=2.0),
        helper.make_node("MatMul", ["g", "c"], ["y"], name="narrow"),
    ]
    return work.model(nodes, values, {"x": ["batch", inner]}, {"y": ["batch", work.CLASSES]})


def _run(candidate, folder):
    session = OnnxRuntime().load(OnnxRuntime().export(candidate, folder))
    x = np.load(Path(candidate.snapshot.folder) / "example.npz")["x"]
    return session.fetch(session.call(session.prepare([x])))[0], session.certify()


def _stored(path, name, inner, bits, group):
    """Values of the packed layer as a matrix, and half a step of each: an independent reading of the format."""
    graph = onnx.load(path).graph
    node = next(n for n in graph.node if n.op_type == "MatMulNBits" and n.name.startswith(name))
    parts = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    packed, scales = parts[node.input[1]], parts[node.input[2]]
    outer, blocks = packed.shape[:2]
    codes = packed if bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1).reshape(outer, blocks, group)
    zero = np.full((outer, blocks), 2 ** (bits - 1))
    if len(node.input) > 3:
        raw = parts[node.input[3]].reshape(outer, -1)
        zero = raw if bits == 8 else np.stack([raw & 15, raw >> 4], axis=-1).reshape(outer, -1)[:, :blocks]
    scales = scales.reshape(outer, blocks, 1).astype(np.float64)
    values = (codes.astype(np.float64) - zero[:, :, None]) * scales
    step = np.broadcast_to(np.abs(scales), values.shape)
    return values.reshape(outer, -1)[:, :inner].T, step.reshape(outer, -1)[:, :inner].T


def _oracle(weight, bits, group, symmetric):
    """Brute force: for each column and group, the nearest of the levels that the group's range spans."""
    out, top = np.zeros(weight.shape), 2**bits - 1
    for column in range(weight.shape[1]):
        for start in range(0, weight.shape[0], group):
            part = weight[start : start + group, column].astype(np.float64)
            low, high = min(part.min(), 0.0), max(part.max(), 0.0)
            if symmetric:
                scale = part[np.abs(part).argmax()] / -(2 ** (bits - 1))
                codes = np.clip(np.round(part / scale), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
                out[start : start + group, column] = codes * scale
            else:
                scale = (high - low) / top
                zero = np.round(-low / scale)
                out[start : start + group, column] = (np.clip(np.round(part / scale + zero), 0, top) - zero) * scale
    return out


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_values_are_group_wise_rounding_to_nearest(tmp_path, bits, symmetric, group):
    candidate = work.candidate(tmp_path, _wide(inner=200))
    after, _ = LEVER.apply(candidate, WeightOnlySettings(bits=bits, group=group, symmetric=symmetric))
    weight = numpy_helper.to_array(next(w for w in _wide(inner=200).graph.initializer if w.name == "a"))
    values, step = _stored(after.model.path, "first", 200, bits, group)
    assert (np.abs(values - weight) <= 0.5 * step * (1 + 1e-3) + step * (0.5 if symmetric else 0.0)).all()
    expected = _oracle(weight, bits, group, symmetric)
    assert np.abs(values - expected).max() <= step.max() * 1.001
    assert np.mean(np.abs(values - expected) > 1e-5) < 0.01, "other than ties, the same codes"


@pytest.mark.parametrize(
    ("fields", "least_db"),
    [
        ({}, 30),
        ({"compute": "float"}, 33),
        ({"symmetric": False}, 30),
        (FOUR, 12),
        ({**FOUR, "compute": "float"}, 12),
        ({**FOUR, "method": "gptq"}, 12),
        ({**FOUR, "method": "hqq"}, 12),
    ],
)
def test_outputs_stay_near_and_the_certificate_counts(tmp_path, fields, least_db):
    candidate = work.candidate(tmp_path, _wide())
    before = (tmp_path / "source.onnx").read_bytes()
    reference, _ = _run(candidate, tmp_path / "float")
    after, change = LEVER.apply(candidate, WeightOnlySettings(**fields))
    outputs, certificate = _run(after, tmp_path / "packed")
    assert work.sqnr_db(reference, outputs) > least_db
    assert (certificate.eligible, certificate.converted, certificate.fallbacks) == (3, 2, ())
    bits, rows = fields.get("bits", 8), "float32" if fields.get("compute") == "float" else "int8"
    packed = [precision for _, precision in certificate.precisions if "weights" in precision]
    assert packed == [f"int{bits} weights, {'float32' if fields.get('method') == 'hqq' else rows}"] * 2
    facts = dict(change.facts)
    assert (facts["quantised"], facts["eligible"], facts["left_in_float"]) == (2, 3, "narrow")
    assert (tmp_path / "source.onnx").read_bytes() == before


@pytest.mark.parametrize("fields", [{}, FOUR, {**FOUR, "group": 128}, {**FOUR, "method": "gptq"}])
def test_sizes_are_as_predicted_and_a_replay_gives_the_same_bytes(tmp_path, fields):
    candidate = work.candidate(tmp_path, work.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="only")],
        {"w": (np.random.default_rng(2).standard_normal((512, 512)) / 22).astype(np.float32)},
        {"x": ["batch", 512]}, {"y": ["batch", 512]},
    ))  # fmt: skip
    candidate = replace(candidate, snapshot=replace(candidate.snapshot, weights_bytes=4 * 512 * 512))
    chosen = WeightOnlySettings(**fields)
    op = replace(work.op("matmul", 2e6, weights_bytes=4.0 * 512 * 512), shape="4x512,512x512")
    predicted = LEVER.predict(candidate, chosen, work.diagnosis([op], 0.1), _machine()).size_bytes
    digests = []
    for place in ("once", "twice"):
        folder = tmp_path / place
        folder.mkdir()
        after, _ = LEVER.apply(replace(candidate, workspace=str(folder)), chosen)
        digests.append(hashlib.sha256(Path(after.model.path).read_bytes()).hexdigest())
        assert predicted.low <= Path(after.model.path).stat().st_size <= predicted.high
    assert digests[0] == digests[1]


def test_the_ledger_counts_packed_products(tmp_path):
    candidate = work.candidate(tmp_path, _wide())
    after, _ = LEVER.apply(candidate, WeightOnlySettings(bits=4, group=64))
    ops = [
        op for op in count_onnx(after.model.path, {"x": np.ones((4, 256), np.float32)}, batch=4).ops
        if op.name == "MatMulNBits"
    ]  # fmt: skip
    assert {op.kind for op in ops} == {"matmul"}
    assert sum(op.flops for op in ops) == 2 * 4 * (256 * 128 + 128 * 16)
    assert sum(op.weights_bytes for op in ops) == (256 * 128 + 128 * 16) * (0.5 + 4 / 64)


def test_a_weight_shared_by_two_layers_is_stored_once(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="one"),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="two"),
    ]
    weight = (np.random.default_rng(2).standard_normal((64, 64)) / 8).astype(np.float32)
    candidate = work.candidate(tmp_path, work.model(nodes, {"w": weight}, {"x": ["batch", 64]}, {"y": ["batch", 64]}))
    after, change = LEVER.apply(candidate, WeightOnlySettings())
    assert dict(change.facts)["quantised"] == 2
    assert len(onnx.load(after.model.path).graph.initializer) == 2
    _run(after, tmp_path / "out")


def test_nothing_wide_enough_is_a_no_op_and_bad_weights_are_named(tmp_path):
    candidate = work.candidate(tmp_path / "narrow", work.embedder())
    _, change = LEVER.apply(candidate, WeightOnlySettings(group=64))
    assert change.no_op
    assert dict(change.facts)["left_in_float"] == "head"
    bad = np.ones((256, 128), np.float32)
    bad[3, 4] = np.nan
    with pytest.raises(UserError, match=r"weight 'a'.*NaN"):
        LEVER.apply(work.candidate(tmp_path / "bad", _wide(a=bad)), WeightOnlySettings())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"bits": 3}, "bits=3"), ({"group": 48}, "group=48"), ({"compute": "bf16"}, "compute='bf16'"),
        ({"method": "awq"}, "method='awq'"), ({"method": "hqq"}, "4 bits and asymmetric"),
        ({"method": "gptq", "bits": 4}, "4 bits and asymmetric"),
    ],
)  # fmt: skip
def test_bad_settings_are_named(fields, words):
    with pytest.raises(UserError, match=words):
        WeightOnlySettings(**fields)


# ---------------------------------------------------------------- prediction


def _machine(narrow=1.0):
    made = work.machine({
        ("onnxruntime", "matmul", "fp32"): RATE, ("onnxruntime", "matmul", "int8"): narrow * RATE,
        ("onnxruntime", "conv", "fp32"): RATE,
    })  # fmt: skip
    stream = Ceiling(name="dram", unit="B/s", value=STREAM, low=STREAM, high=STREAM)
    return replace(made, ceilings=(stream,))


def _products(batch, layers=8, size=1024):
    one = replace(
        work.op("matmul", 2.0 * batch * size * size * layers, weights_bytes=4.0 * size * size * layers),
        shape=f"{batch}x{size},{size}x{size}", calls=layers,
        bytes_high=4.0 * layers * (size * size + 2 * batch * size),
    )  # fmt: skip
    seconds = max(one.flops / RATE, one.weights_bytes / STREAM)
    found = work.diagnosis([one], seconds)
    return replace(found, ledger=replace(found.ledger, batch=batch))


@pytest.mark.parametrize("fields", [{}, {**FOUR, "compute": "float"}])
def test_the_gain_falls_with_the_batch(tmp_path, fields):
    candidate = work.candidate(tmp_path, _wide())
    gains = [
        LEVER.predict(candidate, WeightOnlySettings(**fields), _products(batch), _machine()).speedup.value
        for batch in (1, 8, 64, 512)
    ]
    assert gains[0] > 1.5
    assert all(a > b or max(a, b) <= 1.0 for a, b in pairwise(gains)), "it falls to a loss, which large batches dilute"
    assert gains[-1] < 1.0


def test_the_basis_says_up_to_which_batch_it_pays(tmp_path):
    candidate = work.candidate(tmp_path, _wide())
    chosen = WeightOnlySettings(**FOUR, compute="float")
    basis = LEVER.predict(candidate, chosen, _products(1), _machine()).basis
    limit = int(packed_rows(peak_flops_per_s=RATE, bandwidth_bytes_per_s=STREAM, unpack_flops=12.0))
    assert limit == 14
    assert f"pays up to batch {limit - 1}" in basis or f"pays up to batch {limit}" in basis


@settings(max_examples=40, deadline=None)
@given(rate=st.floats(1e10, 1e13), stream=st.floats(1e9, 1e11), unpack=st.floats(0.0, 60.0))
def test_the_crossover_is_that_of_the_law(rate, stream, unpack):
    """With flat rates the numeric search finds the closed form; a tie at the edge may go either way."""
    machine = work.machine({("onnxruntime", "matmul", "fp32"): rate})
    machine = replace(machine, ceilings=(Ceiling(name="dram", unit="B/s", value=stream, low=stream, high=stream),))
    law = packed_rows(peak_flops_per_s=rate, bandwidth_bytes_per_s=stream, unpack_flops=unpack)
    diagnosis = _products(1)
    found = _weight_only.crossover_batch(
        diagnosis, machine, diagnosis.ledger.ops, target="onnxruntime", threads=1,
        pack=_weight_only.packing(bits=4, group=32, scale_bytes=4.0), kernel=Kernel(unpack=exactly(unpack)),
    )  # fmt: skip
    assert found is None or abs(found - law) <= 1.0 + 1e-6 * law


def test_a_large_batch_is_refused_with_its_bound_unless_size_is_wanted(tmp_path):
    candidate = work.candidate(tmp_path, _wide())
    answer = LEVER.applies(candidate, _products(4096), _machine(0.5))
    assert isinstance(answer, No)
    assert "at batch 4096: at most" in answer.reason
    assert "pays" in answer.reason
    small = replace(candidate, goal=Goal(objective=Objective.SIZE))
    assert isinstance(LEVER.applies(small, _products(4096), _machine(0.5)), Yes)
    assert isinstance(LEVER.applies(candidate, _products(1), _machine(0.5)), Yes)


def test_models_without_linear_layers_are_refused_and_told_why(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    answer = LEVER.applies(candidate, work.diagnosis([work.op("conv", 1e9)], 0.1), _machine())
    assert isinstance(answer, No)
    assert "no linear layer with weights in float among 1 operators" in answer.reason
    thin = replace(work.op("matmul", 1e6), shape="4x8,5x8")
    answer = LEVER.applies(candidate, work.diagnosis([thin], 0.1), _machine())
    assert isinstance(answer, No)
    assert "(at most 8) holds a group of 32" in answer.reason


def test_eight_bits_come_before_four_and_gptq_only_with_data(tmp_path):
    candidate, machine = work.candidate(tmp_path, _wide()), _machine()
    options = [o.settings for o in LEVER.options(candidate, _products(1), machine)]
    assert [o.bits for o in options] == sorted((o.bits for o in options), reverse=True)
    bare = replace(candidate, snapshot=replace(candidate.snapshot, calibration_batches=0))
    assert {o.method for o in options} == {"rtn", "gptq"}
    assert {o.settings.method for o in LEVER.options(bare, _products(1), machine)} == {"rtn"}
