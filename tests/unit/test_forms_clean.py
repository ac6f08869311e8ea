"""Folding and dropping in exported graphs: equal numbers, and exactly the operators that should go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_workload import candidate, liven

from ironlaw import forms
from ironlaw.forms import clean, exported


def cleaned(tmp_path: Path, model: nn.Module, example: torch.Tensor) -> tuple[clean.Cleaned, Counter[str]]:
    start = candidate(tmp_path, model.eval(), example)
    program = exported.load(Path(forms.convert(start, "exported").model.path))
    found = clean.clean(program, start.snapshot)
    return found, Counter(clean._name(n) for n in found.program.graph.nodes if n.op == "call_function")


def check_equal(found: clean.Cleaned, model: nn.Module, example: torch.Tensor, rows: int = 5) -> None:
    torch.manual_seed(3)
    x = torch.randn(rows, *example.shape[1:])
    with torch.no_grad():
        torch.testing.assert_close(found.program.module()(x), model(x), rtol=2e-4, atol=2e-4)


LAYERS: dict[str, tuple[nn.Module, nn.Module, tuple[int, ...]]] = {
    "conv": (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), (1, 3, 9, 9)),
    "conv without bias": (nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), (1, 3, 9, 9)),
    "strided, dilated": (nn.Conv2d(3, 8, 3, stride=2, dilation=2, padding=2), nn.BatchNorm2d(8), (1, 3, 11, 9)),
    "padding same": (nn.Conv2d(3, 8, 3, padding="same", bias=False), nn.BatchNorm2d(8), (1, 3, 9, 9)),
    "grouped": (nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8), (1, 4, 9, 9)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.BatchNorm2d(4), (1, 4, 9, 9)),
    "norm without weights": (nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8, affine=False), (1, 3, 5, 5)),
    "norm with epsilon": (nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8, eps=0.3), (1, 3, 5, 5)),
    "1-D": (nn.Conv1d(3, 8, 3, bias=False), nn.BatchNorm1d(8), (1, 3, 9)),
    "3-D": (nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4), (1, 2, 4, 4, 4)),
    "transposed": (nn.ConvTranspose2d(3, 8, 2, stride=2), nn.BatchNorm2d(8), (1, 3, 5, 5)),
    "linear": (nn.Linear(6, 4), nn.BatchNorm1d(4), (1, 6)),
    "linear without bias": (nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4, affine=False), (1, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_norm_is_folded_into_the_layer_before_it(name: str, tmp_path: Path) -> None:
    layer, norm, shape = LAYERS[name]
    torch.manual_seed(0)
    if norm.affine:
        liven(norm)
    else:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
    model = nn.Sequential(layer, norm, nn.ReLU()).eval()
    example = torch.randn(shape)
    found, operators = cleaned(tmp_path, model, example)
    assert found.folded == 1
    assert "aten.batch_norm" not in operators
    check_equal(found, model, example)


class Shared(nn.Module):
    """The convolution has a second reader, so its norm must stay."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        liven(self.norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.norm(y) + y


class Tokens(nn.Module):
    """A linear layer over tokens, whose norm scales axis 1, which is not the layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 4), nn.BatchNorm1d(3)
        liven(self.norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


class GroupedTransposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.ConvTranspose2d(4, 8, 2, groups=2), nn.BatchNorm2d(8)
        liven(self.norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


class NormFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(3)
        liven(self.norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.norm(x))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Shared(), (1, 3, 6, 6)),
        (Tokens(), (1, 3, 6)),
        (GroupedTransposed(), (1, 4, 5, 5)),
        (NormFirst(), (1, 3, 6, 6)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_what_cannot_be_folded_stays(model: nn.Module, shape: tuple[int, ...], tmp_path: Path) -> None:
    found, operators = cleaned(tmp_path, model, torch.randn(shape))
    assert found.folded == 0
    assert operators["aten.batch_norm"] == 1
    assert not found.changed
    check_equal(found, model, torch.randn(shape))


class Constants(nn.Module):
    """exp(table) * 2 is a constant; the noise is not, and the mask of the input is not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(4.0))
        self.weight = nn.Parameter(torch.eye(4))
        self.drop = nn.Dropout(0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(x) @ self.weight.t()
        return x + torch.exp(self.table.view(2, 2)).reshape(4) * 2


def test_constants_are_computed_once_and_dropout_goes(tmp_path: Path) -> None:
    model = Constants()
    found, operators = cleaned(tmp_path, model, torch.ones(1, 4))
    assert found.dropped == 1
    assert found.precomputed == 2
    assert not {"aten.exp", "aten.mul", "aten.dropout"} & set(operators)
    assert operators["aten.add"] == 1
    check_equal(found, model.eval(), torch.ones(1, 4))
    assert set(found.program.state_dict) == {"weight", "mul_value"}, "the table is not carried along"


def test_random_operators_are_never_constants(tmp_path: Path) -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("like", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0.0 * torch.rand_like(self.like)

    _, operators = cleaned(tmp_path, Noise(), torch.ones(1, 4))
    assert operators["aten.rand_like"] == 1


def test_a_wrong_fold_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any) -> tuple[Any, Any]:
        weight, bias = genuine(*args)
        return weight * 1.01, bias

    genuine = clean._fused
    monkeypatch.setattr(clean, "_fused", wrong)
    with pytest.raises(ArithmeticError, match="differs by"):
        cleaned(tmp_path, nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), torch.randn(1, 3, 9, 9))


def test_cleaning_twice_changes_nothing_more(tmp_path: Path) -> None:
    start = candidate(tmp_path)
    once = clean.clean(exported.load(Path(forms.convert(start, "exported").model.path)), start.snapshot)
    assert (once.folded, once.dropped) == (2, 1)
    twice = clean.clean(once.program, start.snapshot)
    assert not twice.changed
    assert exported.digest(twice.program) == exported.digest(once.program)
