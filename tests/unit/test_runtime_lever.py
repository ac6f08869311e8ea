"""The levers ``runtime`` and ``runtime_options``: which moves are offered, and that only the execution changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_workload as work
import pytest

from ironlaw import registry
from ironlaw.contracts import No
from ironlaw.levers.machine.runtime import Runtime, RuntimeSettings
from ironlaw.levers.machine.runtime_options import RuntimeOptions, RuntimeOptionsSettings
from ironlaw.records import Execution, ModelFile, UserError
from ironlaw.targets.onnxruntime import OnnxRuntime

ORT_FASTER = {
    ("torch", "conv", "fp32"): 1e10,
    ("onnxruntime", "conv", "fp32"): 4e10,
    ("openvino", "conv", "fp32"): 2e10,
}


def _eager(tmp_path, **execution):
    candidate = work.candidate(
        tmp_path, work.cnn(), execution=Execution(**{"target": "torch", "batch": 4, **execution})
    )
    return replace(candidate, model=ModelFile(form="eager", path="model.pkl", digest="e" * 64))


def _targets(options):
    return [option.settings.target for option in options]


def test_every_other_runtime_is_offered_the_fastest_by_rates_first(tmp_path):
    candidate = _eager(tmp_path)
    diagnosis = work.diagnosis([work.op("conv", 1e9)], 0.1, target="torch")
    offered = _targets(Runtime().options(candidate, diagnosis, work.machine(ORT_FASTER)))
    assert offered[0] == "onnxruntime"
    assert not {"torch", "aotinductor"} & set(offered)
    assert len(offered) == len(set(offered))


def test_the_present_runtime_and_those_with_unmet_needs_are_not_offered(tmp_path, monkeypatch):
    candidate = work.candidate(tmp_path, work.cnn())
    diagnosis = work.diagnosis([work.op("conv", 1e9)], 0.1)
    monkeypatch.setattr(registry, "unmet", lambda needs, **_: ["the package openvino is not installed"])
    assert Runtime().options(candidate, diagnosis, work.machine(ORT_FASTER)) == []
    answer = Runtime().applies(candidate, diagnosis, work.machine(ORT_FASTER))
    assert isinstance(answer, No)
    assert "openvino: the package openvino is not installed" in answer.reason


def test_the_prediction_is_the_ratio_of_the_runtimes_rates(tmp_path):
    """The same work at 4x the rate; the present run is explained by its own rate, so nothing else moves."""
    candidate = _eager(tmp_path)
    diagnosis = work.diagnosis([work.op("conv", 1e9)], 0.1, target="torch")
    machine = work.machine(ORT_FASTER)
    prediction = Runtime().predict(candidate, RuntimeSettings(target="onnxruntime"), diagnosis, machine)
    assert prediction.speedup.value == pytest.approx(4.0, rel=0.05)
    slower = Runtime().predict(candidate, RuntimeSettings(target="openvino"), diagnosis, machine)
    assert slower.speedup.value == pytest.approx(2.0, rel=0.05)


def test_a_move_changes_the_execution_alone_and_drops_options_of_before(tmp_path):
    candidate = _eager(tmp_path, threads=2, options=(("layout", "channels_last"),), variables=(("A", "1"),))
    after, change = Runtime().apply(candidate, RuntimeSettings(target="onnxruntime"))
    assert after.execution == replace(candidate.execution, target="onnxruntime", options=())
    assert after.model == candidate.model
    assert not change.no_op
    assert dict(change.facts)["target"] == "onnxruntime"
    _, nothing = Runtime().apply(replace(after, changes=()), RuntimeSettings(target="onnxruntime"))
    assert nothing.no_op


# ---------------------------------------------------------------- switches


def _on(tmp_path, target, **execution):
    return work.candidate(tmp_path, work.cnn(), execution=Execution(**{"target": target, "batch": 4, **execution}))


def _tried(candidate):
    diagnosis, machine = work.diagnosis([work.op("conv", 1e9)], 0.1), work.machine(ORT_FASTER)
    return {(o.settings.option, o.settings.value) for o in RuntimeOptions().options(candidate, diagnosis, machine)}


def test_switches_that_need_threads_are_tried_with_threads_only(tmp_path):
    assert _tried(_on(tmp_path, "onnxruntime", threads=1)) == {("graph_level", "extended"), ("graph_level", "basic")}
    assert ("mode", "parallel") in _tried(_on(tmp_path, "onnxruntime", threads=2))
    assert _tried(_on(tmp_path, "openvino", threads=1)) == set()
    assert ("streams", "0") not in _tried(_on(tmp_path, "openvino", threads=2, batch=3))
    assert ("streams", "0") in _tried(_on(tmp_path, "openvino", threads=2, batch=4))


def test_a_runtime_without_switches_is_refused_with_those_that_have(tmp_path):
    diagnosis, machine = work.diagnosis([work.op("conv", 1e9)], 0.1), work.machine(ORT_FASTER)
    answer = RuntimeOptions().applies(_on(tmp_path, "torch"), diagnosis, machine)
    assert isinstance(answer, No)
    assert "onnxruntime, openvino" in answer.reason
    answer = RuntimeOptions().applies(_on(tmp_path, "openvino"), diagnosis, machine)
    assert isinstance(answer, No)
    assert "one thread" in answer.reason


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("spinning", "False", {"spinning": False}),
        ("graph_level", "extended", {"graph_level": "extended"}),
        ("mode", "parallel", {"mode": "parallel", "inter_op": 2}),
    ],
)
def test_each_switch_reaches_the_session_and_keeps_the_numbers(tmp_path, option, value, expected):
    candidate = _on(tmp_path, "onnxruntime", threads=2)
    settings = RuntimeOptionsSettings(target="onnxruntime", option=option, value=value)
    after, change = RuntimeOptions().apply(candidate, settings)
    assert dict(after.execution.options) == expected
    assert not change.no_op
    assert (option, value) not in _tried(after)
    x = np.load(tmp_path / "example.npz")["x"]

    def run(c, name):
        session = OnnxRuntime().load(OnnxRuntime().export(c, tmp_path / name))
        return session.fetch(session.call(session.prepare([x])))[0]

    np.testing.assert_allclose(run(after, "after"), run(candidate, "before"), rtol=1e-4, atol=1e-5)


def test_a_switch_of_another_runtime_or_an_unknown_one_is_an_error(tmp_path):
    candidate = _on(tmp_path, "onnxruntime", threads=2)
    with pytest.raises(UserError, match="is a switch of openvino"):
        RuntimeOptions().apply(candidate, RuntimeOptionsSettings(target="openvino", option="pinning", value="True"))
    with pytest.raises(UserError, match="graph_level=none"):
        RuntimeOptions().apply(
            candidate, RuntimeOptionsSettings(target="onnxruntime", option="graph_level", value="none")
        )


def test_streams_become_one_a_thread(tmp_path):
    settings = RuntimeOptionsSettings(target="openvino", option="streams", value="0")
    after, _ = RuntimeOptions().apply(_on(tmp_path, "openvino", threads=2), settings)
    assert after.execution.option("streams") == 2
