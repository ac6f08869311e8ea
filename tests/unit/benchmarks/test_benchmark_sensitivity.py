"""The benchmark ``sensitivity``: its net is rescaled and not changed, and budgets choose the right points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from benchmarks import sensitivity
from benchmarks.sensitivity import Point


def test_rescaling_channels_leaves_the_outputs_and_widens_the_weights():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise((8, 16, 16, 4))]
    net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    x = torch.randn(32, 8)
    before, wide = net(x), layers[1].weight.abs().max().item()
    sensitivity._rescale(layers, seed=0)
    torch.testing.assert_close(net(x), before, rtol=1e-4, atol=1e-5)
    assert layers[1].weight.abs().max().item() > 2 * wide


def test_the_best_point_keeps_the_budget_and_has_the_most_in_int8():
    points = [
        Point(exact=frozenset(), share=1.0, changed=0.2),
        Point(exact=frozenset("a"), share=0.7, changed=0.02),
        Point(exact=frozenset("b"), share=0.7, changed=0.01),
        Point(exact=frozenset("ab"), share=0.0, changed=0.0),
    ]
    assert [sensitivity.best(points, budget).share for budget in (0.0, 0.01, 0.02, 0.5)] == [0.0, 0.7, 0.7, 1.0]
    assert sensitivity.best(points, 0.02).exact == frozenset("b")
    row = sensitivity._row(0, 0.02, points, [points[0], points[3]])
    assert row["of exhaustive"] == pytest.approx(0.0)
    assert row["changed, all int8"] == 0.2
    assert np.isfinite([value for value in row.values() if isinstance(value, float)]).all()
