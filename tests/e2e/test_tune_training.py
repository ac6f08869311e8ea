"""A training job through the whole loop, as a user runs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
JOB = """
import torch
from torch.utils.data import DataLoader, Dataset
import ironlaw as il


class Rows(Dataset):
    def __init__(self):
        self.x = torch.randn(800, 16, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        for _ in range(20):  # what decoding costs
            x = x.roll(1)
        return x, int(x[0] > 0)


def job():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    data = DataLoader(Rows(), batch_size=16, shuffle=True)
    return il.Training(model, data, torch.nn.functional.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.1), steps=100)
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_job.py"
    path.write_text(JOB)
    return path


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_that_decodes_is_sped_up_and_trains_the_same(run_ironlaw: Run, job_file: Path, home: Path) -> None:
    command = [
        "tune",
        f"{job_file}:job",
        "--include",
        "decoded_samples",
        "--time-limit",
        "200s",
        "--json",
        "-",
        "--quiet",
    ]
    done = run_ironlaw(*command)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    schema = json.loads(resources.files("ironlaw").joinpath("schemas/run-1.json").read_text())
    jsonschema.validate(run, schema)
    assert run["diagnosis"]["dominant"] in ("io", None)
    (best,) = [t for t in run["trials"] if t["id"] == run["best"]]
    assert [lever["name"] for lever in best["levers"]] == ["decoded_samples"]
    assert best["measured"]["throughput_per_s"] > run["baseline"]["measured"]["throughput_per_s"]
    assert "trains the same" in best["quality"]["reason"]
    package = home / "runs" / run["id"] / "artefact"
    assert {path.name for path in package.iterdir()} == {"manifest.json", "recipe.py", "run.py", "settings.json"}
    again = json.loads(run_ironlaw(*command).stdout)
    assert [t["reused"] for t in again["trials"]] == [True] * len(again["trials"])
    assert again["best"] == run["best"]


@pytest.mark.slow
def test_a_job_has_objectives_of_its_own(run_ironlaw: Run, job_file: Path) -> None:
    done = run_ironlaw("tune", f"{job_file}:job", "--objective", "latency", "--quiet")
    assert done.returncode == 2
    assert "is not one of a training job" in done.stderr
