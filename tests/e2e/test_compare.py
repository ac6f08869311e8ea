"""`compare` as CI uses it: what ships against the model, the same model against itself, a worse one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
MORE = """

def worse():
    torch.manual_seed(1)
    return il.Inference(Net().eval(), workload().example)


def wider():
    net = torch.nn.Linear(6, CLASSES)
    return il.Inference(net, (torch.randn(1, 6),))
"""


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_what_ships_holds_and_a_worse_model_is_a_regression(
    run_ironlaw: Run, workload_file: Path, home: Path, tmp_path: Path
) -> None:
    workload_file.write_text(workload_file.read_text() + MORE)
    model = f"{workload_file}:workload"
    limits = ["--target", "onnxruntime", "--include", "runtime", "--time-limit", "60s"]
    tuned = run_ironlaw("tune", model, *limits, "--json", "-", "--quiet")
    assert tuned.returncode == 0, tuned.stderr
    package = home / "runs" / json.loads(tuned.stdout)["id"] / "artefact"
    assert json.loads((package / "manifest.json").read_text())["target"] == "onnxruntime"

    shipped = run_ironlaw("compare", model, str(package), "--json", "-", "--quiet")
    assert shipped.returncode == 0, shipped.stdout + shipped.stderr
    found = json.loads(shipped.stdout)
    assert found["schema"] == "ironlaw.comparison/1"
    assert not found["regression"]
    assert found["after"]["gain"]["median"] > 1.5
    assert found["after"]["quality"]["value"] == pytest.approx(1.0, abs=0.01)

    worse = run_ironlaw("compare", model, f"{workload_file}:worse", "--quiet")
    assert worse.returncode == 1, worse.stdout + worse.stderr
    assert "REGRESSION" in worse.stdout


@pytest.mark.slow
def test_what_cannot_be_compared_is_told(run_ironlaw: Run, workload_file: Path) -> None:
    workload_file.write_text(workload_file.read_text() + MORE)
    model = f"{workload_file}:workload"
    for other, words in (
        ("nothing-of-the-kind", "is not in"),
        (f"{workload_file}:wider", "Linear"),
        ("x.onnx", "x.onnx"),
    ):
        done = run_ironlaw("compare", model, other, "--quiet")
        assert done.returncode == 2, done.stdout + done.stderr
        assert words in done.stderr
