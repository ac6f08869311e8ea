"""One quick machine measurement for all end-to-end tests, and small workloads on files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WORKLOAD = """
import torch
import ironlaw as il

torch.manual_seed(0)
CLASSES = 5


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        )
        self.head = torch.nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def workload():
    net = Net().eval()
    x = torch.randn(400, 1, 8, 8)
    with torch.no_grad():
        y = net(x).argmax(1)
    return il.Inference(net, (x[:1],), evaluate=il.metrics.top1(x, y), calibrate=[(x[:32],), (x[32:64],)])


def scalar():
    net = Net().eval()
    x = torch.randn(300, 1, 8, 8)
    with torch.no_grad():
        y = net(x).argmax(1)
    def accuracy(predict):
        return float((predict(x).argmax(1) == y).float().mean())
    return il.Inference(net, (x[:1],), evaluate=accuracy, calibrate=[(x[:32],)], metric="accuracy")
"""


@pytest.fixture(scope="session")
def measured_machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds this machine's ceilings, measured once."""
    home = tmp_path_factory.mktemp("machine")
    done = ironlaw("machine", "--quick", "--quiet", home=home)
    assert done.returncode == 0, done.stderr
    return home / "machines"


@pytest.fixture
def home(tmp_path: Path, measured_machine: Path) -> Path:
    """A store of this test's own that knows the machine already."""
    folder = tmp_path / "store"
    shutil.copytree(measured_machine, folder / "machines")
    return folder


@pytest.fixture
def workload_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_model.py"
    path.write_text(WORKLOAD)
    return path


def ironlaw(*arguments: str, home: Path, **settings: object) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "ironlaw.cli", *arguments],
        env={**os.environ, "IRONLAW_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=400,
        **settings,  # type: ignore[call-overload]
    )


@pytest.fixture
def run_ironlaw(home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda *arguments, **settings: ironlaw(*arguments, home=home, **settings)
