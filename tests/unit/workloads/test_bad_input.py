"""Every bad input gives one UserError that names what is wrong, with exit code 2, before anything is written."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ironlaw.records import UserError
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.load import load
from ironlaw.workloads.snapshot import snapshot

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def net(**attributes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    for name, value in attributes.items():
        setattr(model[0], name, value)
    return model


def graph(weights, batch="n"):
    node = helper.make_node("MatMul", ["x", "w"], ["out"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [batch, 3])]
    made = helper.make_graph([node], "g", inputs, outputs, [numpy_helper.from_array(weights, "w")])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def model_onnx(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(graph(np.ones((4, 3), np.float32)), path)
    return path


def refused(run, folder: Path) -> UserError:
    before = set(folder.rglob("*"))
    with pytest.raises(UserError) as caught:
        run()
    assert caught.value.exit_code == 2
    assert set(folder.rglob("*")) == before
    return caught.value


# ---------------------------------------------------------------- workloads


class Raises(nn.Module):
    def forward(self, x):
        raise ZeroDivisionError("inside forward")


class Oddity(nn.Module):
    def forward(self, x):
        return object()


def nan_weights():
    model = net()
    with torch.no_grad():
        model[0].weight[1, 2] = torch.nan
    return model


def moving():
    """An evaluate that remembers."""
    state = {"calls": 0}

    def evaluate(predict):
        state["calls"] += 1
        return 0.5 + 0.1 * state["calls"]

    return evaluate


def broken(predict):
    return predict(X)["logits"]


WORKLOADS = {
    "not a model": (lambda: Inference("hello", X), ["no such file"]),
    "no model at all": (lambda: Inference(42, X), ["model (int)", "torch.nn.Module"]),
    "forward raises": (
        lambda: Inference(Raises(), X),
        ["ZeroDivisionError: inside forward", "test_bad_input.py", "raise"],
    ),
    "wrong shape": (lambda: Inference(net(), X[:, :3]), ["forward raises", "(2, 3)"]),
    "odd output": (lambda: Inference(Oddity(), X), ["model output (object)"]),
    "nan weights": (lambda: Inference(nan_weights(), X), ["weights '0.weight'", "1 of 12"]),
    "nan example": (lambda: Inference(net(), X * torch.nan), ["example 'input'", "NaN"]),
    "empty example": (lambda: Inference(net(), X[:0]), ["empty"]),
    "no example": (lambda: Inference(net(), ()), ["no tensors"]),
    "words in the example": (lambda: Inference(net(), ("a",)), ["is str"]),
    "bfloat16 example": (lambda: Inference(net(), X.bfloat16()), ["bfloat16"]),
    "nan metric": (lambda: Inference(net(), X, evaluate=lambda p: float("nan")), ["evaluate", "NaN"]),
    "nan score": (lambda: Inference(net(), X, evaluate=lambda p: [1.0, np.nan]), ["evaluate", "NaN"]),
    "moving metric": (lambda: Inference(net(), X, evaluate=moving()), ["differs between two calls", "0.6"]),
    "wordy metric": (lambda: Inference(net(), X, evaluate=lambda p: "good"), ["returned str"]),
    "evaluate raises": (lambda: Inference(net(), X, evaluate=broken), ["evaluate", "raises", 'predict(X)["logits"]']),
    "empty calibration": (lambda: Inference(net(), X, calibrate=[]), ["calibrate", "no batches"]),
    "labelled calibration": (lambda: Inference(net(), X, calibrate=[(X, X)]), ["calibrate batch 0", "2 inputs"]),
    "calibration shape": (lambda: Inference(net(), X, calibrate=[X, X[0]]), ["calibrate batch 1", "shape (4,)"]),
    "calibration width": (lambda: Inference(net(), X, calibrate=[X[:, :3]]), ["calibrate batch 0", "input (2, 3)"]),
    "calibration nan": (lambda: Inference(net(), X, calibrate=[X * torch.nan]), ["calibrate batch 0", "NaN"]),
    "calibration raises": (lambda: Inference(net(), X, calibrate=(1 / 0 for _ in "a")), ["calibrate", "ZeroDivision"]),
    "cannot be pickled": (lambda: Inference(net(hidden=(i for i in "a")), X), ["cannot be pickled", "generator"]),
    "nan outputs": (lambda: Inference(Log(), X, evaluate=lambda p: 1.0), ["model output 'output'", "NaN"]),
    "random forward": (lambda: Inference(nn.Sequential(nn.Linear(4, 3), Noise()), X), ["differs between two calls"]),
}


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


@pytest.mark.parametrize("case", WORKLOADS)
def test_workload(case, tmp_path):
    make, words = WORKLOADS[case]
    error = refused(lambda: snapshot(make(), tmp_path, "bad"), tmp_path)
    for word in words:
        assert word in str(error)


# ---------------------------------------------------------------- files


HELPED = "def workload():\n    return helper(0)\ndef helper(x):\n    return 1 / x"
READS = "from pathlib import Path\ndef workload():\n    return Path('no_such').read_text()"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def other(): pass", ["has no 'workload'", "other"]),
        ("def workload(): return 3", ["is a int, wanted an il.Inference"]),
        ("def workload(): pass", ["is None"]),
        (HELPED, ["ZeroDivisionError", "m.py:4: return 1 / x"]),
        (READS, ["FileNotFoundError", "m.py:3"]),
        ("import sys\nsys.exit(3)", ["SystemExit", "m.py:2"]),
        ("def workload(:", ["SyntaxError", "m.py:1"]),
        ("import no_such_package", ["ModuleNotFoundError", "no_such_package", "m.py:1"]),
    ],
)
def test_python_file(code, words, tmp_path):
    (tmp_path / "m.py").write_text(code)
    with pytest.raises(UserError) as caught:
        load(f"{tmp_path / 'm.py'}:workload")
    assert caught.value.exit_code == 2
    for word in words:
        assert word in str(caught.value)
    if "Error" in words[0]:
        assert type(caught.value.__cause__).__name__ == words[0]


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("nowhere.py:f", "no such file"),
        ("nowhere.py", "names no workload"),
        ("model.gguf", "is not a workload"),
        ("demo:nothing", "is not known"),
        ("demo:digits@x", "not a batch size"),
        ("demo:digits@0", "not a batch size"),
        ("nowhere.onnx", "without data"),
    ],
)
def test_spec(spec, word):
    with pytest.raises(UserError, match=word) as caught:
        load(spec)
    assert caught.value.exit_code == 2


def test_data_goes_with_onnx_only(tmp_path):
    with pytest.raises(UserError, match="does not go with"):
        load("demo:digits", data=tmp_path / "x.npz")


# ---------------------------------------------------------------- ONNX


@pytest.mark.parametrize("damage", ["truncated", "noise", "empty", "text"])
def test_corrupt_onnx(damage, model_onnx, tmp_path):
    raw = model_onnx.read_bytes()
    model_onnx.write_bytes(
        {"truncated": raw[: len(raw) // 2], "noise": bytes(range(256)) * 4, "empty": b"", "text": b"hello"}[damage]
    )
    data = tmp_path / "d.npz"
    np.savez(data, x=np.ones((4, 4), np.float32))
    error = refused(lambda: load(str(model_onnx), data=data), tmp_path)
    assert "corrupt or truncated" in str(error)
    assert str(model_onnx) in str(error)


def test_every_truncation_of_an_onnx_is_an_error(model_onnx, tmp_path):
    raw = model_onnx.read_bytes()
    data = tmp_path / "d.npz"
    np.savez(data, x=np.ones((4, 4), np.float32))
    for length in range(0, len(raw), 7):
        model_onnx.write_bytes(raw[:length])
        with pytest.raises(UserError):
            snapshot(load(str(model_onnx), data=data), tmp_path / "store", "m")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, ["has no x"]),
        ({"x": np.ones((4, 4), np.float32), "z": np.ones(4)}, ["z, which the graph does not take"]),
        ({"x": np.ones((4, 5), np.float32)}, ["(4, 5)", "?x4"]),
        ({"x": np.ones(4, np.float32)}, ["(4,)"]),
        ({"x": np.ones((4, 4), np.complex64)}, ["complex64"]),
        ({"x": np.ones((0, 4), np.float32)}, ["0 examples"]),
        ({"x": np.full((4, 4), np.nan, np.float32)}, ["'x' holds NaN"]),
        ({"x": np.ones((4, 4), np.float32), "y": np.ones(5, int)}, ["labels y", "4 examples"]),
        ({"x": np.ones((4, 4), np.float32), "y": np.array(["a"] * 4)}, ["neither classes nor targets"]),
    ],
)
def test_data_that_does_not_fit(arrays, words, model_onnx, tmp_path):
    data = tmp_path / "d.npz"
    np.savez(data, **arrays)
    error = refused(lambda: load(str(model_onnx), data=data), tmp_path)
    for word in words:
        assert word in str(error)


def test_fixed_batch_needs_that_many_examples(tmp_path):
    onnx.save(graph(np.ones((4, 3), np.float32), batch=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.ones((5, 4), np.float32))
    error = refused(lambda: load(str(tmp_path / "m.onnx"), data=tmp_path / "d.npz"), tmp_path)
    assert "5 examples, the graph takes 8" in str(error)


@pytest.mark.parametrize("raw", [b"", b"hello", b"PK\x03\x04broken"])
def test_broken_npz(raw, model_onnx, tmp_path):
    (tmp_path / "d.npz").write_bytes(raw)
    error = refused(lambda: load(str(model_onnx), data=tmp_path / "d.npz"), tmp_path)
    assert "d.npz" in str(error)


def test_pickles_in_npz_are_not_read(model_onnx, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.array([print], dtype=object))
    assert "not a readable .npz" in str(refused(lambda: load(str(model_onnx), data=tmp_path / "d.npz"), tmp_path))


@pytest.mark.parametrize(("value", "fails"), [(np.nan, True), (np.inf, True), (-np.inf, True)])
def test_weights_of_onnx_must_be_finite(value, fails, tmp_path):
    weights = np.ones((4, 3), np.float32)
    weights[1, 1] = value
    onnx.save(graph(weights), tmp_path / "m.onnx")
    error = refused(lambda: snapshot(Inference(tmp_path / "m.onnx", X.numpy()), tmp_path, "m"), tmp_path)
    assert "weights 'w'" in str(error)


def test_masks_of_minus_infinity_are_not_weights(tmp_path):
    model = net()
    model.register_buffer("mask", torch.triu(torch.full((3, 3), -torch.inf), 1))
    assert snapshot(Inference(model, X), tmp_path, "m").parameters == 15


# ---------------------------------------------------------------- disk


def test_store_that_cannot_be_written(tmp_path, monkeypatch):
    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ironlaw.workloads.snapshot._write_file", full)
    error = refused(lambda: snapshot(Inference(net(), X), tmp_path, "m"), tmp_path)
    assert "No space left on device" in str(error)


def test_store_that_is_a_file(tmp_path):
    (tmp_path / "store").write_text("")
    error = refused(lambda: snapshot(Inference(net(), X), tmp_path / "store", "m"), tmp_path)
    assert "cannot be written" in str(error)


@pytest.mark.parametrize("name", ["m.pt2", "m.safetensors", "m.pkl"])
def test_other_files(name, tmp_path):
    (tmp_path / name).write_bytes(b"hello")
    error = refused(lambda: snapshot(Inference(tmp_path / name, X), tmp_path / "store", "m"), tmp_path)
    assert name in str(error)


class Named(nn.Module):
    def forward(self, x):
        return {"y": x + 1}


def test_exported_program_with_other_outputs(tmp_path):
    torch.export.save(torch.export.export(Named(), (X,)), tmp_path / "m.pt2")
    error = refused(lambda: snapshot(Inference(tmp_path / "m.pt2", X), tmp_path / "store", "m"), tmp_path)
    assert "tuple of tensors" in str(error)
