"""int8_openvino: quantised layers are counted, run in int8, and a runtime that computes garbage is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_workload as work
import pytest
from onnx import helper

from ironlaw import forms
from ironlaw.contracts import No
from ironlaw.levers.algorithm.int8_openvino import Int8OpenVino, Int8OpenVinoSettings, sqnr_db
from ironlaw.records import Execution, UserError
from ironlaw.targets import _artefacts
from ironlaw.targets.openvino import OpenVino

for _package in ("openvino", "nncf"):
    pytest.importorskip(_package, reason="needs the openvino extra: pip install 'ironlaw[openvino]'")
pytestmark = pytest.mark.openvino

LEVER = Int8OpenVino()


def _candidate(folder, proto=None, **data):
    execution = Execution(target="torch", batch=4, threads=1, options=(("layout", "channels_last"),))
    return forms.convert(work.candidate(folder, proto or work.cnn(), execution=execution, **data), "openvino")


def _run(candidate, folder):
    candidate = replace(candidate, execution=replace(candidate.execution, target="openvino"))
    if dict(candidate.execution.options).get("layout"):
        candidate = replace(candidate, execution=replace(candidate.execution, options=()))
    artefact = OpenVino().export(candidate, folder)
    session = OpenVino().load(artefact)
    (outputs,) = session.fetch(session.call(session.prepare(_artefacts.example_arrays(artefact))))
    return outputs, session.certify(), artefact


@pytest.mark.parametrize("fields", [{}, {"preset": "performance"}, {"fast_bias": False}])
def test_it_runs_int8_near_the_float_outputs(tmp_path, fields):
    candidate = _candidate(tmp_path)
    reference, _, large = _run(candidate, tmp_path / "float")
    quantised, change = LEVER.apply(candidate, Int8OpenVinoSettings(**fields))
    outputs, certificate, small = _run(quantised, tmp_path / "int8")
    assert work.sqnr_db(reference, outputs) > 20
    assert certificate.converted >= 2
    facts = dict(change.facts)
    assert (facts["quantised"], facts["eligible"], facts["calibration_rows"]) == (3, 3, 16)
    assert facts["sqnr_db"] == pytest.approx(work.sqnr_db(reference, outputs), abs=0.2)
    assert quantised.execution == Execution(target="openvino", batch=4, threads=1)
    bins = [(tmp_path / name / "model.bin").stat().st_size for name in ("float", "int8")]
    assert bins[1] < 0.5 * bins[0]
    assert small.execution.target == large.execution.target == "openvino"


def test_a_replay_gives_the_same_change_and_digest(tmp_path):
    candidate = _candidate(tmp_path)
    (tmp_path / "again").mkdir()
    first, change = LEVER.apply(candidate, Int8OpenVinoSettings())
    second, same = LEVER.apply(replace(candidate, workspace=str(tmp_path / "again")), Int8OpenVinoSettings())
    assert change == same
    assert first.model.digest == second.model.digest
    other, _ = LEVER.apply(replace(candidate, workspace=str(tmp_path / "again")), Int8OpenVinoSettings(rows=4))
    assert other.model.digest != first.model.digest


@pytest.mark.parametrize("preset", ["mixed", "performance"])
def test_a_perceptron_that_the_runtime_would_compute_wrong_is_kept_apart(tmp_path, preset):
    """At batch 4 OpenVINO 2026.4 fuses this into one subgraph with outputs at 0 dB or below."""
    candidate = _candidate(tmp_path, work.mlp())
    reference, _, _ = _run(candidate, tmp_path / "float")
    quantised, change = LEVER.apply(candidate, Int8OpenVinoSettings(preset=preset))
    outputs, certificate, _ = _run(quantised, tmp_path / "int8")
    assert work.sqnr_db(reference, outputs) > 20
    assert certificate.converted == certificate.eligible == 2
    assert dict(change.facts)["snippets"] is (quantised.execution.option("snippets") is not False)


@pytest.mark.parametrize("kind", ["one sample", "zeros"])
def test_poor_calibration_data_still_gives_finite_outputs(tmp_path, kind):
    shape = (work.CHANNELS, work.SIDE, work.SIDE)
    batch = work.data(shape, batches=1, rows=1)[0] if kind == "one sample" else np.zeros((4, *shape), np.float32)
    quantised, _ = LEVER.apply(_candidate(tmp_path, calibration=[batch]), Int8OpenVinoSettings())
    assert np.isfinite(_run(quantised, tmp_path / "out")[0]).all()


def test_nothing_to_quantise_is_a_no_op(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="r")]
    proto = work.model(nodes, {}, {"x": ["batch", 8]}, {"y": ["batch", 8]})
    _, change = LEVER.apply(_candidate(tmp_path, proto), Int8OpenVinoSettings())
    assert change.no_op


def test_bad_settings_and_data_are_named(tmp_path):
    with pytest.raises(UserError, match="preset='best'"):
        Int8OpenVinoSettings(preset="best")
    with pytest.raises(UserError, match="no batches"):
        LEVER.apply(_candidate(tmp_path, calibration=[]), Int8OpenVinoSettings())


def test_it_refuses_with_numbers_where_int8_kernels_are_slower(tmp_path):
    candidate = work.candidate(tmp_path, work.cnn())
    diagnosis = work.diagnosis([work.op("conv", 1e9)], 0.1)
    slow = {("openvino", "conv", "fp32"): 3e10, ("openvino", "conv", "int8"): 2e10}
    answer = LEVER.applies(candidate, diagnosis, work.machine(slow))
    assert isinstance(answer, No)
    assert "20 GFLOP/s against 30" in answer.reason
    assert "on openvino" in answer.reason


def test_attention_models_tell_nncf_so(tmp_path):
    candidate, machine = work.candidate(tmp_path, work.cnn()), work.machine({})
    batch_norm = work.op("norm", 1, name="aten.batch_norm")
    layer_norm = work.op("norm", 1, name="LayerNormalization")
    convolutions = LEVER.options(candidate, work.diagnosis([work.op("conv", 1e9), batch_norm], 0.1), machine)
    attention = LEVER.options(candidate, work.diagnosis([work.op("matmul", 1e9), layer_norm], 0.1), machine)
    assert not any(o.settings.transformer for o in convolutions)
    assert all(o.settings.transformer for o in attention)


def test_sqnr_is_its_closed_form():
    assert sqnr_db([np.ones(4)], [np.full(4, 1.1)]) == pytest.approx(20.0)
    assert sqnr_db([np.ones(4)], [np.ones(4)]) is None
