"""Conversions: shortest ways, caching, names, a free batch, causes of failure; values against the eager model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch_workload import SIDE, Cnn, PinsItsBatch, TwoInputs, candidate, image

from ironlaw import forms
from ironlaw.forms import Step, batch, eager, exported, files


def step(source: str, produces: str) -> Step:
    return Step(source=source, produces=produces, module="none", entry="none")


def test_route_is_the_shortest_way() -> None:
    steps = [step("a", "b"), step("b", "c"), step("c", "d"), step("a", "x"), step("x", "d"), step("d", "a")]
    assert [s.name for s in forms.route("a", "d", steps) or ()] == ["a -> x", "x -> d"]
    assert forms.route("c", "b", steps) == (steps[2], steps[5], steps[0])
    assert forms.route("a", "a", steps) == ()
    assert forms.route("a", "nowhere", steps) is None


def test_nearest_counts_steps_and_prefers_the_first_of_equals() -> None:
    assert forms.nearest("eager", ["openvino", "onnx"]) == "onnx"
    assert forms.nearest("onnx", ["eager", "openvino"]) == "openvino"
    assert forms.nearest("onnx", ["eager", "exported"]) is None
    assert forms.nearest("eager", ["eager", "exported"]) == "eager"


def test_no_way_is_an_error_with_both_ends(tmp_path: Path) -> None:
    start = candidate(tmp_path)
    with pytest.raises(forms.ConversionError, match="eager -> moon: there is no conversion"):
        forms.convert(start, "moon")


def test_onnx_has_the_names_a_free_batch_and_the_models_outputs(tmp_path: Path) -> None:
    start = candidate(tmp_path, TwoInputs(), (torch.arange(7).reshape(1, 7), torch.ones(1, 7)))
    there = forms.convert(start, "onnx")
    graph = onnx.load(there.model.path)
    assert [v.name for v in graph.graph.input] == [s.name for s in start.snapshot.inputs]
    assert [v.name for v in graph.graph.output] == [s.name for s in start.snapshot.outputs]
    assert graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert {o.version for o in graph.opset_import if o.domain == ""} == {20}
    assert str(Path(__file__).parent) not in str(graph), "a trace of the source is left"
    rng = np.random.default_rng(0)
    tokens, mask = rng.integers(0, 20, (5, 7)), rng.uniform(0.1, 1, (5, 7)).astype(np.float32)
    names = [s.name for s in start.snapshot.inputs]
    found = onnxruntime.InferenceSession(there.model.path).run(None, dict(zip(names, (tokens, mask), strict=True)))
    with torch.no_grad():
        expected = TwoInputs()(torch.from_numpy(tokens), torch.from_numpy(mask))
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e.numpy(), rtol=1e-5, atol=1e-6)


def test_a_conversion_is_done_once_and_kept_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = candidate(tmp_path)
    first = forms.convert(start, "onnx")
    assert f"onnx-{forms.convert(start, 'exported').model.digest[:16]}" in first.model.path
    monkeypatch.setattr(Step, "take", lambda *_: pytest.fail("converted again"))
    assert forms.convert(start, "onnx") == first
    other = dataclasses.replace(start, model=dataclasses.replace(start.model, digest="0" * 64))
    with pytest.raises(pytest.fail.Exception):
        forms.convert(other, "onnx")


@pytest.mark.slow
def test_digests_do_not_depend_on_the_day_or_the_store(tmp_path: Path) -> None:
    one, two = (forms.convert(candidate(tmp_path / n), "onnx") for n in ("one", "two"))
    assert one.model.path != two.model.path
    assert one.model.digest == two.model.digest
    assert forms.convert(candidate(tmp_path, Cnn(seed=1)), "onnx").model.digest != one.model.digest


def test_an_export_at_batch_one_is_not_bound_to_it(tmp_path: Path) -> None:
    there = forms.convert(candidate(tmp_path, example=image(1)), "exported")
    program = exported.load(Path(there.model.path))
    assert exported.is_dynamic(program)
    x = image(9, seed=4)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x), Cnn()(x))


def test_a_model_that_pins_its_batch_is_exported_at_the_snapshots(tmp_path: Path) -> None:
    start = candidate(tmp_path, PinsItsBatch(), torch.ones(3, 6))
    assert start.snapshot.dynamic, "eager takes any batch"
    there = forms.convert(start, "onnx")
    assert batch.batch_of(Path(there.model.path), start.snapshot.inputs) == 3


def test_a_failing_step_says_which_and_why_and_leaves_nothing(tmp_path: Path) -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if float(x.sum()) > 0 else x

    start = candidate(tmp_path, Branches().eval(), torch.ones(2, 3))
    with pytest.raises(forms.ConversionError) as caught:
        forms.convert(start, "onnx")
    assert caught.value.step == "eager -> exported"
    assert "\n" not in caught.value.cause
    assert ":" in caught.value.cause
    assert sorted(p.name for p in (Path(start.snapshot.folder) / "forms").iterdir()) == ["eager"]


def test_last_line_is_of_the_deepest_cause() -> None:
    error = RuntimeError("shallow")
    error.__cause__ = LookupError("deep\nwith more")
    assert forms.last_line(error) == "LookupError: deep"
    assert forms.last_line(ValueError()) == "ValueError"


def half_done(folder: Path) -> None:
    with files.publishing(folder) as beside:
        (beside / "half").write_text("x")
        raise InterruptedError


def test_publishing_is_all_or_nothing_and_the_first_wins(tmp_path: Path) -> None:
    with pytest.raises(InterruptedError):
        half_done(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    with files.publishing(tmp_path / "model") as slow:
        with files.publishing(tmp_path / "model") as quick:
            (quick / "a").write_text("first")
        (slow / "a").write_text("second")
    assert (tmp_path / "model" / "a").read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_example_is_repeated_or_cut(tmp_path: Path, rows: int) -> None:
    start = candidate(tmp_path, example=image(3))
    found = files.example(start.snapshot, rows)["image"]
    assert found.shape == (rows, 3, SIDE, SIDE)
    np.testing.assert_array_equal(found, image(3).numpy()[np.arange(rows) % 3])


def test_fixing_the_batch_of_an_onnx_model(tmp_path: Path) -> None:
    there = forms.convert(candidate(tmp_path), "onnx")
    inputs, source = there.snapshot.inputs, Path(there.model.path)
    assert batch.batch_of(source, inputs) is None
    fixed = batch.fix(source, tmp_path / "fixed.onnx", inputs, 4)
    assert batch.batch_of(fixed, inputs) == 4
    assert batch.batch_of(source, inputs) is None, "the source is as it was"
    x = image(4, seed=2)
    found = onnxruntime.InferenceSession(fixed).run(None, {"image": x.numpy()})[0]
    with torch.no_grad():
        np.testing.assert_allclose(found, Cnn()(x).numpy(), rtol=1e-5, atol=1e-5)
    assert onnx.load(fixed).graph.output[0].type.tensor_type.shape.dim[0].dim_value == 4
    with pytest.raises(ValueError, match="fixed at batch 4"):
        batch.fix(fixed, tmp_path / "again.onnx", inputs, 5)


def test_a_pickled_module_carries_the_code_of_the_users_file(tmp_path: Path) -> None:
    import subprocess
    import sys

    eager.save(Cnn(), tmp_path / "m.pkl")
    code = "import pickle, torch; m = pickle.load(open('m.pkl', 'rb')); print(float(m(torch.ones(1, 3, 12, 12)).sum()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        assert float(done.stdout) == pytest.approx(float(Cnn()(torch.ones(1, 3, 12, 12)).sum()), rel=1e-5)


@pytest.mark.openvino
def test_openvino_keeps_float32_weights(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    there = forms.convert(candidate(tmp_path), "openvino")
    model = openvino.Core().read_model(there.model.path)
    constants = [op for op in model.get_ops() if op.get_type_name() == "Constant"]
    assert not [op for op in constants if op.get_element_type().get_type_name() == "f16"]
    assert model.input(0).partial_shape[0].is_dynamic
