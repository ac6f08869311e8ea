"""The openvino target: explicit precision, streams that split the batch, certificates, and no word to the network."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import onnx_workload as work
import pytest
from onnx.reference import ReferenceEvaluator

from ironlaw import forms
from ironlaw.records import Execution, UserError
from ironlaw.targets import _artefacts
from ironlaw.targets.openvino import OpenVino

pytest.importorskip("openvino", reason="needs the openvino extra: pip install 'ironlaw[openvino]'")
pytestmark = pytest.mark.openvino


def _candidate(folder, proto=None, **execution):
    fields = {"target": "openvino", "batch": 4, "threads": 1, **execution}
    candidate = work.candidate(folder, proto or work.cnn(), execution=Execution(**fields))
    return forms.convert(candidate, "openvino")


def _run(candidate, folder):
    artefact = OpenVino().export(candidate, folder)
    session = OpenVino().load(artefact)
    (outputs,) = session.fetch(session.call(session.prepare(_artefacts.example_arrays(artefact))))
    return outputs, session, artefact


def _reference(artefact):
    (x,) = _artefacts.example_arrays(artefact)
    return ReferenceEvaluator(work.cnn()).run(None, {"x": x})[0]


def _has_bf16():
    import openvino

    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def test_fp32_stays_float32_even_where_the_cpu_has_bf16(tmp_path):
    outputs, session, artefact = _run(_candidate(tmp_path), tmp_path / "out")
    np.testing.assert_allclose(outputs, _reference(artefact), rtol=1e-4, atol=1e-5)
    certificate = session.certify()
    assert set(dict(certificate.precisions).values()) == {"float32"}
    assert (certificate.eligible, certificate.converted, certificate.fallbacks) == (3, 0, ())


def test_bf16_is_run_when_asked_and_shows_in_the_certificate(tmp_path):
    if not _has_bf16():
        pytest.skip("this CPU has no bfloat16 kernels")
    outputs, session, artefact = _run(_candidate(tmp_path, precision="bf16"), tmp_path / "out")
    reference = _reference(artefact)
    assert outputs.dtype == np.float32
    assert 30 < work.sqnr_db(reference, outputs) < 80
    certificate = session.certify()
    assert (certificate.eligible, certificate.converted) == (3, 3)
    assert set(dict(certificate.precisions).values()) == {"bfloat16"}


def test_streams_split_the_batch_and_change_no_number(tmp_path):
    one, _, _ = _run(_candidate(tmp_path / "1", threads=2), tmp_path / "one")
    two, session, artefact = _run(_candidate(tmp_path / "2", threads=2, options=(("streams", 2),)), tmp_path / "two")
    np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-5)
    assert artefact.inputs[0].shape[0] == 4
    assert session.certify().threads == 2
    assert "NUM_STREAMS=2" in session.certify().evidence[2]
    for execution in ({"threads": 2, "batch": 3}, {"threads": 1, "batch": 4}):
        with pytest.raises(UserError, match="2 streams"):
            OpenVino().export(_candidate(tmp_path, options=(("streams", 2),), **execution), tmp_path / "no")


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_that_were_asked_for(tmp_path, threads):
    _, session, _ = _run(_candidate(tmp_path, threads=threads), tmp_path / "out")
    assert session.certify().threads == threads


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"precision": "fp16"}, "precision 'fp16'"),
        ({"options": (("graph_level", "all"),)}, "option 'graph_level'"),
        ({"options": (("hint", "speed"),)}, "hint 'speed'"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(tmp_path, fields, wrong):
    with pytest.raises(UserError, match=wrong):
        OpenVino().export(_candidate(tmp_path, **fields), tmp_path / "out")


def test_a_model_made_for_another_batch_is_refused(tmp_path):
    """A reshape to a constant number of rows pins the batch inside the graph."""
    from onnx import helper

    proto = work.model(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], name="r")],
        {"shape": np.array([4, 8], np.int64)},
        {"x": [4, 2, 4]},
        {"y": [4, 8]},
    )
    assert _run(_candidate(tmp_path / "same", proto), tmp_path / "out")[0].shape == (4, 8)
    with pytest.raises(UserError, match="batch 6"):
        OpenVino().export(_candidate(tmp_path / "other", proto, batch=6), tmp_path / "no")


@pytest.mark.parametrize("options", [(), (("streams", 2),)])
def test_the_snippet_runs_in_a_fresh_process_without_ironlaw(tmp_path, options):
    outputs, _, artefact = _run(_candidate(tmp_path, threads=2, options=options), tmp_path / "out")
    code = artefact.snippet + 'import sys; np.save("y.npy", outputs[0]); assert "ironlaw" not in sys.modules\n'
    subprocess.run([sys.executable, "-I", "-c", code], cwd=artefact.folder, check=True, timeout=60)
    np.testing.assert_allclose(np.load(tmp_path / "out/y.npy"), outputs, rtol=1e-5, atol=1e-6)


def test_the_profile_counts_work_by_its_closed_form(tmp_path):
    candidate = _candidate(tmp_path)
    _, session, artefact = _run(candidate, tmp_path / "out")
    ops = {op.kind: op for op in session.profile(session.prepare(_artefacts.example_arrays(artefact)), 5)}
    assert ops["conv"].flops == 2 * (4 * 16 * 8 * 8) * (3 * 3 * 3)
    assert ops["depthwise"].flops == 2 * (4 * 16 * 8 * 8) * 9
    assert ops["matmul"].flops == 2 * 4 * 256 * 10
    assert ops["depthwise"].weights_bytes == 4 * 16 * 9


def test_an_unquantised_layer_of_an_int8_model_is_named_as_a_fallback(tmp_path):
    """The FakeQuantize pairs are only around the convolution: the product behind it stays float and is named."""
    from ironlaw.levers.algorithm.int8_static import Int8Static, Int8StaticSettings

    source = work.candidate(tmp_path, work.cnn(), execution=Execution(target="openvino", batch=4))
    quantised, _ = Int8Static().apply(source, Int8StaticSettings())
    _, whole, _ = _run(forms.convert(_retarget(quantised), "openvino"), tmp_path / "whole")
    certificate = whole.certify()
    ran = dict(certificate.precisions)
    assert certificate.converted == sum(dtype == "int8" for dtype in ran.values()) > 0
    assert set(certificate.fallbacks) == {name for name, dtype in ran.items() if dtype != "int8"}


def _retarget(candidate):
    from dataclasses import replace

    return replace(candidate, execution=replace(candidate.execution, target="openvino"))


def test_calibration_tells_kinds_and_dtypes_apart():
    rates = {(r.kind, r.dtype): r for r in OpenVino().calibrate(1, 0.6)}
    kinds = ("conv", "depthwise", "matmul", "attention", "recurrent", "elementwise", "norm", "softmax", "pool")
    assert {(kind, "float32") for kind in kinds} <= set(rates)
    assert {(kind, "int8") for kind in ("conv", "depthwise", "matmul")} <= set(rates)
    assert ("elementwise", "int8") not in rates
    for rate in rates.values():
        assert rate.target == "openvino"
        assert rate.shapes >= 8
        assert 0 < rate.rate.low <= rate.rate.value <= rate.rate.high


NETWORK = """
    import os, socket, sys, time

    def refuse(*args, **kwargs):
        with open({log!r}, "a") as log:  # a file, since reports are sent from a forked process
            log.write(str(args[:1]) + "\\n")
        raise OSError("no network in this test")

    socket.getaddrinfo = socket.create_connection = socket.gethostbyname = refuse
    socket.socket.connect = lambda self, address: refuse(address)
    sys.path[:0] = [{tests!r}, {root!r}]
    import ironlaw.forms.telemetry as telemetry
    if not {silent}:
        telemetry.silence = lambda: None
    from pathlib import Path
    import onnx_workload as work
    from ironlaw import forms
    from ironlaw.levers.algorithm.int8_openvino import Int8OpenVino, Int8OpenVinoSettings
    from ironlaw.targets.openvino import OpenVino
    from ironlaw.records import Execution

    execution = Execution(target="openvino", batch=4)
    candidate = forms.convert(work.candidate(Path({folder!r}), work.cnn(), execution=execution), "openvino")
    quantised, _ = Int8OpenVino().apply(candidate, Int8OpenVinoSettings())
    OpenVino().load(OpenVino().export(quantised, Path({folder!r}) / "out")).certify()
    time.sleep(2.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("silent", [True, False])
def test_nothing_tries_to_reach_the_network(tmp_path, silent):
    """With a home that has no consent file, where these packages report by default; without our silence they do."""
    pytest.importorskip("nncf", reason="needs the openvino extra: pip install 'ironlaw[openvino]'")
    log = tmp_path / "tried.txt"
    tests = os.path.dirname(__file__)
    root = os.path.dirname(os.path.dirname(tests))
    code = textwrap.dedent(NETWORK).format(
        tests=tests, root=root, folder=str(tmp_path / "w"), silent=silent, log=str(log)
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "TF_BUILD", "JENKINS_URL")}
    environment.update(HOME=str(tmp_path))
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=180, check=True)
    assert log.exists() is not silent
    assert silent or "google-analytics" in log.read_text()
