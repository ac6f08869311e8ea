"""The onnxruntime target: same numbers as the ONNX reference, what ships runs alone, certificates tell the truth."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnx_workload as work
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from ironlaw.records import Execution, UserError
from ironlaw.targets import _artefacts, _calibration_graphs, _ort_graph
from ironlaw.targets.onnxruntime import OnnxRuntime


def _example(candidate):
    return np.load(f"{candidate.snapshot.folder}/example.npz")["x"]


def _session(candidate, folder):
    return OnnxRuntime().load(OnnxRuntime().export(candidate, folder))


def _execution(**fields):
    return Execution(**{"target": "onnxruntime", "batch": 4, "threads": 1, **fields})


def test_outputs_equal_the_reference_evaluator(tmp_path):
    proto = work.cnn()
    candidate = work.candidate(tmp_path, proto)
    session = _session(candidate, tmp_path / "out")
    x = _example(candidate)
    (mine,) = session.fetch(session.call(session.prepare([x])))
    (reference,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(mine, reference, rtol=1e-4, atol=1e-5)


def test_a_result_outlives_the_next_call(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    session = _session(candidate, tmp_path / "out")
    x = _example(candidate)
    first = session.fetch(session.call(session.prepare([x])))[0].copy()
    native = session.prepare([x])
    (kept,) = session.fetch(session.call(native))
    session.fetch(session.call(session.prepare([-x])))
    np.testing.assert_array_equal(kept, first)


def test_the_batch_is_fixed_in_the_file_and_another_is_refused(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn(), execution=_execution(batch=6))
    artefact = OnnxRuntime().export(candidate, tmp_path / "out")
    graph = onnx.load(tmp_path / "out/model.onnx").graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_value == 6
    assert artefact.inputs[0].shape == (6, work.CHANNELS, work.SIDE, work.SIDE)
    assert artefact.size_bytes == (tmp_path / "out/model.onnx").stat().st_size
    with pytest.raises(UserError, match="fixed at batch 3"):
        OnnxRuntime().export(work.candidate(tmp_path / "b", work.cnn(batch=3)), tmp_path / "b/out")
    with pytest.raises(UserError, match="takes"):
        OnnxRuntime().load(artefact).prepare([_example(candidate)])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_pool_has_the_threads_that_were_asked_for(tmp_path, threads):
    candidate = work.candidate(tmp_path, work.cnn(), execution=_execution(threads=threads))
    session = _session(candidate, tmp_path / "out")
    assert session.pool_threads == threads
    assert session.certify().threads == threads


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"precision": "bf16"}, "precision 'bf16'"),
        ({"options": (("stream", 2),)}, "option 'stream'"),
        ({"options": (("graph_level", "max"),)}, "graph_level 'max'"),
        ({"options": (("mode", "both"),)}, "mode 'both'"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(tmp_path, fields, wrong):
    with pytest.raises(UserError, match=wrong):
        OnnxRuntime().export(work.candidate(tmp_path, work.cnn(), execution=_execution(**fields)), tmp_path / "out")


@pytest.mark.parametrize(
    "options", [(), (("graph_level", "basic"), ("inter_op", 2), ("mode", "parallel"), ("spinning", False))]
)
def test_the_snippet_runs_in_a_fresh_process_without_ironlaw(tmp_path, options):
    candidate = work.candidate(tmp_path, work.cnn(), execution=_execution(options=options, batch=5))
    artefact = OnnxRuntime().export(candidate, tmp_path / "out")
    session = OnnxRuntime().load(artefact)
    (mine,) = session.fetch(session.call(session.prepare(_artefacts.example_arrays(artefact))))
    code = artefact.snippet + 'import sys; np.save("y.npy", outputs[0]); assert "ironlaw" not in sys.modules\n'
    subprocess.run([sys.executable, "-I", "-c", code], cwd=artefact.folder, check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "out/y.npy"), mine)


def test_the_profile_counts_work_by_its_closed_form(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    session = _session(candidate, tmp_path / "out")
    ops = {op.kind: op for op in session.profile(session.prepare([_example(candidate)]), 5)}
    assert ops["conv"].flops == 2 * (4 * 16 * 8 * 8) * (3 * 3 * 3)
    assert ops["depthwise"].flops == 2 * (4 * 16 * 8 * 8) * 9
    assert ops["matmul"].flops == 2 * 4 * 256 * 10
    assert ops["matmul"].weights_bytes == 4 * (256 * 10 + 10)
    assert all(op.time_s is not None and op.time_s >= 0 and op.calls == 1 for op in ops.values())


def test_a_lower_graph_level_leaves_activations_unfused(tmp_path):
    def ran(level):
        execution = _execution(options=(("graph_level", level),))
        candidate = work.candidate(tmp_path / level, work.cnn(), execution=execution)
        return _session(candidate, tmp_path / level / "out").certify().evidence[0]

    assert "Relu" in ran("basic")
    assert "Relu" not in ran("all")


def test_a_float_model_converts_nothing_and_falls_back_nowhere(tmp_path):
    certificate = _session(work.candidate(tmp_path, work.cnn()), tmp_path / "out").certify()
    assert (certificate.eligible, certificate.converted, certificate.fallbacks) == (3, 0, ())
    assert set(dict(certificate.precisions).values()) == {"float32"}
    assert dict(certificate.providers) == {"CPUExecutionProvider": 6}
    assert certificate.proven


def test_quantisation_around_an_operator_without_int8_kernel_is_a_fallback(tmp_path):
    """ConvTranspose has no int8 kernel in this provider: QDQ around it runs in float, and must not count."""
    rng = np.random.default_rng(0)
    values = {
        "w": rng.integers(-127, 127, (3, 5, 3, 3)).astype(np.int8),
        "s": np.float32(0.02),
        "z": np.int8(0),
        "az": np.uint8(128),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "az"], ["xq"], name="q"),
        helper.make_node("DequantizeLinear", ["xq", "s", "az"], ["xd"], name="dq"),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wd"], name="wdq"),
        helper.make_node("ConvTranspose", ["xd", "wd"], ["c"], name="up"),
        helper.make_node("QuantizeLinear", ["c", "s", "az"], ["cq"], name="q2"),
        helper.make_node("DequantizeLinear", ["cq", "s", "az"], ["y"], name="dq2"),
    ]
    proto = work.model(nodes, values, {"x": ["batch", 3, 8, 8]}, {"y": ["batch", 5, 10, 10]})
    certificate = _session(work.candidate(tmp_path, proto), tmp_path / "out").certify()
    assert certificate.eligible == 1
    assert certificate.converted == 0
    assert certificate.fallbacks == ("up",)


def test_an_input_that_the_graph_dropped_is_fed_nowhere(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    extra = replace(candidate.snapshot.inputs[0], name="mask", shape=(4,))
    assert _artefacts.graph_names((*candidate.snapshot.inputs, extra), ["x"], "input") == ("x", "")
    with pytest.raises(UserError, match="the graph has x, z"):
        _artefacts.graph_names(candidate.snapshot.inputs, ["x", "z"], "input")


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_calibration_cases_state_the_work_of_their_graph(dtype):
    """FLOPs of convolutions and products again, from the shapes that ONNX infers."""
    floats = {case.name: case for case in _calibration_graphs.cases("float32")}
    for case in _calibration_graphs.cases(dtype):
        if case.kind not in ("conv", "depthwise", "matmul"):
            continue
        float_case = floats[case.name]
        model, _ = _calibration_graphs.graph([float_case])
        inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(model))
        (out,) = inferred.graph.output
        size = np.prod([d.dim_value for d in out.type.tensor_type.shape.dim])
        (weight,) = float_case.weights.values()
        inner = np.prod(weight.shape[1:]) if weight.ndim == 4 else weight.shape[0]
        assert case.work == 2 * size * inner


def test_int8_calibration_runs_int8_kernels_and_nothing_fuses_across_cases(tmp_path):
    import onnxruntime as ort

    cases = _calibration_graphs.cases("int8")
    model, feeds = _calibration_graphs.graph(cases)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found = [n for n in _ort_graph.read_graph(str(tmp_path / "o.onnx")) if n.op in ("QLinearConv", "QLinearMatMul")]
    assert len(found) == len(cases)
    assert len(feeds) == len(cases)


def test_calibration_gives_a_rate_for_every_kind_within_its_interval():
    rates = OnnxRuntime().calibrate(1, 0.4)
    found = {(r.kind, r.dtype) for r in rates}
    kinds = {"conv", "depthwise", "matmul", "attention", "recurrent", "elementwise", "norm", "softmax", "pool", "copy"}
    assert {(kind, "float32") for kind in kinds} <= found
    assert {(kind, "int8") for kind in ("conv", "depthwise", "matmul")} <= found
    for rate in rates:
        assert rate.shapes >= 8
        assert 0 < rate.rate.low <= rate.rate.value <= rate.rate.high
        assert 0 < rate.call_s < 1e-3
        assert rate.unit == (
            "FLOP/s" if rate.kind in ("conv", "depthwise", "matmul", "attention", "recurrent") else "B/s"
        )
