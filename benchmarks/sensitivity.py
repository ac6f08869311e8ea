"""Does ranking layers by the noise they make alone find nearly the best mixed int8 net, in a tenth of the evaluations.

A net of eight products is trained on scikit-learn's digits, and its channels are then rescaled so that its outputs stay
and its layers differ in how well int8 holds them, as those of depthwise nets do (Nagel et al. 2019, arXiv:1906.04721,
who undo just that). All 2^8 choices of layers that stay in float are quantised and evaluated: the answer that no
ranking can beat. Against them stand the points of ``int8_mixed``: its ranking, and its first k layers spared for
every k. For each budget (test rows whose answer may change) a point counts by its share of the arithmetic in int8, a
proxy of time that does not depend on this machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from ironlaw import forms
from ironlaw.levers import _onnx_int8, _onnx_quantisers
from ironlaw.levers.algorithm.int8_mixed import Int8Mixed, Int8MixedSettings
from ironlaw.records import Candidate, Goal
from ironlaw.session import base_candidate
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.snapshot import snapshot

WIDTHS = (64, 96, 96, 64, 64, 48, 48, 32, 10)
QUICK = (64, 96, 64, 48, 10)
SEEDS = (0, 1, 2)
BUDGETS = (0.005, 0.01, 0.02, 0.05)
WITHIN, EVALUATIONS = 0.98, 0.1
SPREAD = 1.2
"""Deviation of the logarithm of a channel's factor in the layers that are rescaled strongest.

Chosen by what int8 of everything does to the answers: at 0.7 it changes no more than 1 %, and nothing needs to be
spared; at 2 it changes nearly all, and no ranking means anything."""
EPOCHS, TRAIN_ROWS = 60, 1000

Exact = frozenset[str]
"""Names of the layers that stay in float."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One choice: share of the arithmetic in int8, share of test rows whose answer changed."""

    exact: Exact
    share: float
    changed: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Digits:
    """The trained net, and the rows that it was not trained on."""

    model: Any
    train: np.ndarray
    test: np.ndarray


def run(options: common.Options) -> common.Report:
    report = options.report("sensitivity")
    widths, seeds = (QUICK, SEEDS[:1]) if options.quick else (WIDTHS, SEEDS)
    if options.quick:
        report.left_out.append(f"{len(SEEDS) - 1} of {len(SEEDS)} nets, and half of the layers")
    shares, evaluations = [], 0.0
    for seed in seeds:
        if not options.wants(f"seed {seed}"):
            continue
        options.talk(f"seed {seed}: {2 ** (len(widths) - 1)} choices")
        with tempfile.TemporaryDirectory() as folder:
            every, found, ranked = _points(trained(widths, seed), Path(folder))
        rows = [_row(seed, budget, every, found) for budget in BUDGETS]
        report.arms += rows
        shares += [float(row["of exhaustive"] or 0.0) for row in rows]
        evaluations = max(evaluations, (ranked + len(found)) / len(every))
    report.goal("share of exhaustive's int8, worst budget", min(shares, default=None), at_least=WITHIN)
    report.goal("evaluations over exhaustive's", evaluations or None, at_most=EVALUATIONS)
    return report


def trained(widths: Sequence[int], seed: int) -> Digits:
    """A net of products and ReLUs on digits, its hidden channels rescaled without a change of its outputs."""
    import torch
    from sklearn.datasets import load_digits

    torch.manual_seed(seed)
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    rows = (images[order] / 16).astype(np.float32)
    layers: list[Any] = []
    for wide, narrow in itertools.pairwise(widths):
        layers += [torch.nn.Linear(wide, narrow), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    x, y = torch.from_numpy(rows[:TRAIN_ROWS]), torch.from_numpy(labels[order][:TRAIN_ROWS])
    steps = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(x)).split(50):
            steps.zero_grad()
            torch.nn.functional.cross_entropy(net(x[part]), y[part]).backward()
            steps.step()
    _rescale([layer for layer in net if isinstance(layer, torch.nn.Linear)], seed)
    return Digits(model=net.eval(), train=rows[:TRAIN_ROWS], test=rows[TRAIN_ROWS:])


def _rescale(layers: Sequence[Any], seed: int) -> None:
    """Each hidden channel by a factor, and what reads it by the inverse: a ReLU lets factors above zero through."""
    import torch

    random = np.random.default_rng(seed + 100)
    with torch.no_grad():
        for first, second in itertools.pairwise(layers):
            strength = random.uniform(0.0, SPREAD)
            factor = torch.from_numpy(np.exp(random.standard_normal(first.out_features) * strength).astype(np.float32))
            first.weight *= factor[:, None]
            first.bias *= factor
            second.weight /= factor


def _points(digits: Digits, folder: Path) -> tuple[list[Point], list[Point], int]:
    """Every choice, those that the ranking leads to, and how many evaluations the ranking took.

    A product with a row of inputs does as much arithmetic as its weights have bytes, so these are the shares.
    """
    candidate = _candidate(digits, folder)
    ready = _onnx_int8.preprocess(Path(candidate.model.path), folder)
    Int8Mixed().apply(candidate, Int8MixedSettings(per_channel=False))
    ranking = json.loads((Path(candidate.workspace) / "sensitivity.json").read_text(encoding="utf-8"))
    names = [one["name"] for one in ranking]
    sizes = {one["name"]: one["weight_bytes"] for one in ranking}
    wanted = _answers(ready, digits.test)

    def point(exact: Iterable[str]) -> Point:
        left, out = frozenset(exact), folder / "choice.onnx"
        if len(left) < len(names):
            _onnx_quantisers.static(ready, out, candidate, per_channel=False, exclude=left)
            changed = float(np.mean(_answers(out, digits.test) != wanted))
        else:
            changed = 0.0
        return Point(exact=left, share=1 - sum(sizes[n] for n in left) / sum(sizes.values()), changed=changed)

    choices = [set(c) for k in range(len(names) + 1) for c in itertools.combinations(names, k)]
    every = [point(choice) for choice in choices]
    prefixes = {frozenset(names[:k]) for k in range(len(names) + 1)}
    return every, [one for one in every if one.exact in prefixes], len(names)


def _candidate(digits: Digits, folder: Path) -> Candidate:
    import torch

    rows = [torch.from_numpy(part) for part in np.split(digits.train[:500], 10)]
    taken = snapshot(Inference(digits.model, rows[0], calibrate=rows), folder, "digits")
    work = folder / "work"
    work.mkdir()
    return dataclasses.replace(forms.convert(base_candidate(taken, Goal()), "onnx"), workspace=str(work))


def _answers(path: Path, rows: np.ndarray) -> np.ndarray:
    """The class that the model gives each row."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    answers: np.ndarray = np.argmax(session.run(None, {name: rows})[0], axis=1)
    return answers


def best(points: Iterable[Point], budget: float) -> Point:
    """The largest share in int8 within the budget, the fewest changes among equals; all in float always keeps it."""
    return max((p for p in points if p.changed <= budget), key=lambda p: (p.share, -p.changed))


def _row(seed: int, budget: float, every: Sequence[Point], found: Sequence[Point]) -> dict[str, common.Cell]:
    top, ours = best(every, budget), best(found, budget)
    whole = max(every, key=lambda p: p.share)
    return {
        "case": f"seed {seed}",
        "budget": budget,
        "changed, all int8": whole.changed,
        "exhaustive": top.share,
        "ranked": ours.share,
        "of exhaustive": ours.share / top.share if top.share else 1.0,
        "spared": len(ours.exact),
        "spared by exhaustive": len(top.exact),
    }


if __name__ == "__main__":
    common.main("sensitivity", run)
