"""The recipe computes what the job computed: the same batches, the same gradients, the same statistics."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ironlaw.workloads import recipe
from ironlaw.workloads.dataset import dataset_facts, same


class Squares(Dataset):
    """Samples in a dict, one number of a type that collating converts."""

    def __init__(self, noisy: bool = False, ragged: bool = False) -> None:
        self.noisy, self.ragged = noisy, ragged

    def __len__(self) -> int:
        return 37

    def __getitem__(self, index: int) -> dict[str, object]:
        x = np.full((2, 3) if not self.ragged else (index + 1,), index * index, np.float32)
        return {"x": x + (np.random.rand() if self.noisy else 0), "y": index}


def tensors() -> TensorDataset:
    return TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))


def batches(loader: DataLoader) -> list[object]:
    torch.manual_seed(3)
    return list(loader)


@pytest.mark.parametrize("data", [tensors(), Subset(tensors(), [3, 1, 2, 9, 8, 7])], ids=["tensors", "subset"])
def test_sliced_batches_are_the_same_in_the_same_order(data):
    loader = DataLoader(data, batch_size=4, shuffle=True)
    assert same(batches(loader), batches(recipe.tuned_loader(loader, sliced=True)))


@pytest.mark.parametrize("data", [Squares(), tensors()], ids=["dicts", "tensors"])
def test_decoded_samples_give_the_same_batches(data, tmp_path):
    loader = DataLoader(data, batch_size=5, shuffle=True, drop_last=True)
    size = recipe.decode(data, tmp_path / "decoded")
    assert size == sum(path.stat().st_size - 128 for path in (tmp_path / "decoded").glob("*.npy"))
    tuned = recipe.tuned_loader(loader, decoded=tmp_path / "decoded")
    assert len(tuned) == len(loader)
    assert same(batches(loader), batches(tuned))


def test_decoded_samples_keep_a_collate_of_the_users(tmp_path):
    def firsts(samples):
        return torch.stack([torch.as_tensor(sample["x"])[0] for sample in samples])

    loader = DataLoader(Squares(), batch_size=5, shuffle=True, collate_fn=firsts)
    recipe.decode(Squares(), tmp_path / "decoded")
    assert same(batches(loader), batches(recipe.tuned_loader(loader, decoded=tmp_path / "decoded")))


def test_ragged_samples_are_not_decoded(tmp_path):
    with pytest.raises((ValueError, RuntimeError)):
        recipe.decode(Squares(ragged=True), tmp_path / "decoded")
    assert not (tmp_path / "decoded").exists()


def test_a_loader_without_batches_keeps_its_samples():
    loader = DataLoader(tensors(), batch_size=None, shuffle=True)
    assert same(batches(loader), batches(recipe.tuned_loader(loader)))


def test_facts_of_datasets():
    facts = dataset_facts(DataLoader(tensors(), batch_size=4))
    assert facts == {"samples": 20, "sample_bytes": 16, "repeats": True, "slices": True}
    facts = dataset_facts(DataLoader(Squares(), batch_size=4))
    assert facts == {"samples": 37, "sample_bytes": 32, "repeats": True, "slices": False}
    noisy = dataset_facts(DataLoader(Squares(noisy=True), batch_size=4))
    assert (noisy["repeats"], noisy["slices"]) == (False, False)
    assert dataset_facts(DataLoader(Squares(ragged=True), batch_size=4))["sample_bytes"] is None
    assert dataset_facts([torch.zeros(2)]) == {}


class Blocks(nn.Module):
    """A chain of composite blocks and a chain of plain layers, with batch norms and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3)) for _ in range(3)
        )
        self.tail = nn.Sequential(
            nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.tail(x)


def test_checkpointing_changes_neither_gradients_nor_statistics():
    torch.manual_seed(0)
    plain = Blocks().train()
    tuned = copy.deepcopy(plain)
    names = recipe.checkpointed(tuned)
    assert names[:3] == ["blocks.0", "blocks.1", "blocks.2"]
    assert len(names) == 4
    assert list(tuned.state_dict()) == list(plain.state_dict())
    x = torch.randn(16, 6)
    for model in (plain, tuned):
        torch.manual_seed(1)
        model(x).square().sum().backward()
    for (name, one), (_, other) in zip(plain.state_dict().items(), tuned.state_dict().items(), strict=True):
        torch.testing.assert_close(one, other, msg=name)
    for one, other in zip(plain.parameters(), tuned.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_checkpointing_keeps_fewer_bytes_for_the_backward_pass():
    def kept(model):
        sizes = []
        x = torch.randn(64, 6)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.nbytes) or t, lambda t: t):
            model(x).sum()
        return sum(sizes)

    plain = Blocks().train()
    tuned = copy.deepcopy(plain)
    recipe.checkpointed(tuned)
    assert kept(tuned) < 0.5 * kept(plain)


def test_a_model_without_a_chain_has_nothing_to_checkpoint():
    assert recipe.checkpointed(nn.Linear(2, 2)) == []


def test_autocast_is_of_the_precision():
    layer = nn.Linear(2, 2)
    with recipe.autocast("cpu", "bf16"):
        assert layer(torch.zeros(1, 2)).dtype == torch.bfloat16
    with recipe.autocast("cpu", "fp32"):
        assert layer(torch.zeros(1, 2)).dtype == torch.float32
