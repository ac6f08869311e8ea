"""Bad input: one clear error, exit code 2, nothing lost; what is wrong and what to do are in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ironlaw.cli import app
from ironlaw.measure.energy import counter

HEAD = """
import torch
import ironlaw as il
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()
x = torch.randn(40, 12)
y = torch.zeros(40, dtype=torch.long)
good = il.metrics.top1(x, y)
class Raises(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("no such kernel")
def broken(): raise KeyError("weights.bin")
def number(): return 3
def fine(): return il.Inference(net, (x[:1],), evaluate=good)
def forward_raises(): return il.Inference(Raises(), (x[:1],), evaluate=good)
def wrong_shape(): return il.Inference(net, (torch.randn(1, 7),), evaluate=good)
def nan_weights():
    bad = torch.nn.Linear(12, 3)
    with torch.no_grad(): bad.weight[0, 0] = float("nan")
    return il.Inference(bad, (x[:1],), evaluate=good)
def nan_metric(): return il.Inference(net, (x[:1],), evaluate=lambda predict: float("nan"))
def random_metric():
    import random
    return il.Inference(net, (x[:1],), evaluate=lambda predict: random.random())
def empty_calibration(): return il.Inference(net, (x[:1],), evaluate=good, calibrate=[])
def nan_example(): return il.Inference(net, (torch.full((1, 12), float("nan")),), evaluate=good)
"""


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("IRONLAW_HOME", str(tmp_path / "store"))

    def call(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, list(arguments))
        return result.exit_code, result.output

    return call


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "bad.py"
    path.write_text(HEAD)
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "missing"),
        ("number", "int"),
        ("broken", "weights.bin"),
        ("forward_raises", "no such kernel"),
        ("wrong_shape", "7"),
        ("nan_weights", "weight"),
        ("nan_metric", "nan"),
        ("random_metric", "two calls"),
        ("empty_calibration", "calibrat"),
        ("nan_example", "NaN"),
    ],
)
def test_bad_workloads(invoke: Callable[..., tuple[int, str]], models: Path, name: str, words: str) -> None:
    code, output = invoke("tune", f"{models}:{name}", "--quiet")
    assert code == 2, output
    assert output.count("error:") == 1
    assert "Traceback" not in output
    assert words.lower() in output.lower()


def test_debug_shows_the_users_own_traceback(invoke: Callable[..., tuple[int, str]], models: Path) -> None:
    code, output = invoke("tune", f"{models}:broken", "--quiet", "--debug")
    assert code == 2
    assert "KeyError" in output
    assert "bad.py" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune", "nowhere.py:f"], "no such file"),
        (["tune", "demo:nothing"], "digits"),
        (["tune", "demo:digits", "--max-drop", "lots"], "1pt"),
        (["tune", "demo:digits", "--time-limit", "soon"], "10min"),
        (["tune", "demo:digits", "--objective", "beauty"], "latency"),
        (["tune", "demo:digits", "--include", "magic"], "int8_static"),
        (["tune", "demo:digits", "--target", "abacus"], "onnxruntime"),
        (["report", "nothing"], "ironlaw runs"),
        (["laws", "amdahl", "--p", "1.5", "--s", "2"], "p"),
        (["laws", "nothing"], "amdahl"),
    ],
)
def test_bad_arguments(invoke: Callable[..., tuple[int, str]], arguments: list[str], words: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2, output
    assert words in output


def test_corrupt_onnx(invoke: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x07not a model")
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3), np.float32), y=np.zeros(4, np.int64))
    code, output = invoke("tune", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "d.npz"), "--quiet")
    assert code == 2, output
    assert "m.onnx" in output


def test_machine_that_was_not_measured_is_a_prerequisite(invoke: Callable[..., tuple[int, str]]) -> None:
    code, output = invoke("machine", "--show")
    assert code == 4
    assert "ironlaw machine" in output


@pytest.mark.skipif(counter() is not None, reason="this machine has energy counters")
def test_energy_without_counters_needs_a_word(invoke: Callable[..., tuple[int, str]], models: Path) -> None:
    code, output = invoke("tune", f"{models}:fine", "--objective", "energy")
    assert code == 4, output
    assert "--allow-modelled" in output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is missing (Linux)")
def test_store_that_cannot_be_a_folder(
    invoke: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, models: Path
) -> None:
    monkeypatch.setenv("IRONLAW_HOME", "/dev/full/store")
    code, output = invoke("tune", f"{models}:number")
    assert code == 2, output
    assert "IRONLAW_HOME" in output
    assert os.path.exists("/dev/full")


def test_predictions_are_exchanged_by_the_command(
    invoke: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Written here, refused here as our own, taken by another store; what is no such file says what to give."""
    out = tmp_path / "mine.json"
    assert invoke("predictions", "--export", str(out)) == (0, "0 predictions exported\n")
    code, output = invoke("predictions", "--import", str(out))
    assert code == 2
    assert "comes from this store itself" in output
    monkeypatch.setenv("IRONLAW_HOME", str(tmp_path / "another"))
    assert invoke("predictions", "--import", str(out)) == (0, "0 predictions imported\n")
    out.write_text("{}")
    code, output = invoke("predictions", "--import", str(out))
    assert code == 2
    assert "--export" in output
