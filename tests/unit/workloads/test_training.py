"""Training jobs: what is wrong with the user's part is found in the first step and blamed on its line."""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import ironlaw as il
from ironlaw.measure.process import Child
from ironlaw.records import Execution, UserError, to_data
from ironlaw.workloads.demos import demo
from ironlaw.workloads.job import Job, batch_size, check_training
from ironlaw.workloads.load import given, load, served
from ironlaw.workloads.parcel import pack, unpack


class Rows:
    """Eight rows of four; row 5 may be broken."""

    def __init__(self, broken=False):
        self.broken = broken

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.broken and index == 5:
            raise ValueError("row five is broken")  # here
        return torch.full((4,), float(index)), index % 3


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def training(**changed):
    parts = {
        "model": nn.Linear(4, 3),
        "data": DataLoader(Rows(), batch_size=4),
        "loss": nn.functional.cross_entropy,
        "optimiser": sgd,
        **changed,
    }
    return il.Training(**parts)


def first_step(job):
    return job.first_step(next(job.epoch()))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": print}, "is not a torch.nn.Module"),
        ({"model": nn.ReLU()}, "no parameter that requires a gradient"),
        ({"model": nn.Linear(4, 3).requires_grad_(False)}, "no parameter that requires a gradient"),
        ({"data": iter([1])}, "can be read only once"),
        ({"data": 3}, "gives no batches"),
        ({"loss": 0.5}, "cannot be called"),
        ({"optimiser": torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)}, "is no function of the parameters"),
        ({"precision": "fp8"}, "is not known"),
        ({"steps": 0}, "is not a number of steps"),
    ],
)
def test_what_can_be_seen_without_running(changed, words):
    with pytest.raises(UserError, match=words):
        check_training(training(**changed))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"data": []}, "gives no batches"),
        ({"data": lambda: iter(())}, "gives no batches"),
        ({"data": lambda: 3}, "is what the function returned"),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, r"of shape \(4,\), wanted one number"),
        ({"loss": lambda outputs, targets: 1.5}, "a float, wanted one number"),
        ({"loss": lambda outputs, targets: outputs.sum().detach()}, "does not depend on the parameters"),
        ({"loss": lambda outputs, targets: outputs.sum() * math.nan}, "is nan in the first step"),
        ({"loss": lambda outputs, targets: outputs.sum() / 0}, "is -?inf in the first step"),
        ({"data": lambda: itertools.repeat(torch.zeros(4, 4))}, r"wants pairs \(x, y\)"),
        ({"model": nn.Linear(5, 3)}, r"raises on the first batch, taken as loss\(outputs, targets\)"),
        ({"optimiser": list}, "no torch.optim.Optimizer"),
        ({"optimiser": lambda parameters: torch.optim.SGD(parameters, lr=-1)}, "Invalid learning rate"),
    ],
)
def test_what_the_first_step_finds(changed, words):
    with pytest.raises(UserError, match=words):
        first_step(Job(training(**changed)))


def test_data_that_raises_is_blamed_on_its_line():
    job = Job(training(data=DataLoader(Rows(broken=True), batch_size=2)))
    with pytest.raises(UserError, match="row five is broken") as caught:
        list(job.epoch())
    assert 'raise ValueError("row five is broken")' in caught.value.wrong
    assert __file__ in caught.value.wrong
    assert "loader worker" not in caught.value.wrong


def test_data_that_raises_in_a_loader_worker_is_blamed_on_its_line(tmp_path):
    """In a process of its own, as jobs run: torch's handler for loader workers would stay in this one."""
    path = pack(training(data=DataLoader(Rows(broken=True), batch_size=8, num_workers=1)), tmp_path)
    with Child("ironlaw.steps_worker") as child:
        answer = child.ask("open", timeout_s=100, path=str(path), execution=to_data(Execution()))
    assert 'raise ValueError("row five is broken")' in answer["wrong"]["wrong"]
    assert __file__ in answer["wrong"]["wrong"]
    assert "loader worker" in answer["wrong"]["wrong"]


def test_a_step_descends_and_leaves_the_loss_of_the_user_alone():
    torch.manual_seed(0)
    job = Job(training())
    batch = next(job.epoch())
    losses = [job.first_step(batch) for _ in range(20)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]


def test_both_kinds_of_loss_give_the_same():
    model = nn.Linear(4, 3)

    def by_name(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    batch = torch.randn(4, 4), torch.tensor([0, 1, 2, 0])
    found = [float(Job(training(model=model, loss=loss)).forward(batch)) for loss in (nn.CrossEntropyLoss(), by_name)]
    assert found[0] == found[1]


def test_inputs_by_keyword_and_by_position():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, left, right):
            return self.scale * (left - right)

    left, right = torch.tensor([5.0]), torch.tensor([2.0])
    job = Job(training(model=Two(), loss=lambda outputs, targets: (outputs - targets).sum()))
    for inputs in ({"right": right, "left": left}, (left, right)):
        assert float(job.forward([inputs, torch.tensor([1.0])])) == 2.0


def test_bf16_is_autocast():
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            seen.append(out.dtype)
            return out

    first_step(Job(training(model=Spy(4, 3), precision="bf16")))
    assert seen == [torch.bfloat16]


def test_a_factory_is_opened_again_only_when_it_was_used_up():
    opened = []

    def once():
        opened.append(1)
        return iter([torch.zeros(1)] * 2)

    def again():
        opened.append(2)
        return [torch.zeros(1)] * 2

    for factory, expected in ((once, [1, 1, 1]), (again, [2])):
        opened.clear()
        job = Job(training(data=factory))
        assert [len(list(job.epoch())) for _ in range(3)] == [2, 2, 2]
        assert opened == expected


def test_batch_size_is_that_of_the_first_tensor():
    assert batch_size([torch.zeros(7, 2), torch.zeros(7)]) == 7
    assert batch_size({"ids": torch.zeros(5, 9)}) == 5
    assert batch_size(((torch.zeros(3, 1),), 4)) == 3
    assert batch_size("text") == 1


def test_the_parcel_leaves_evaluate_behind_and_names_what_cannot_travel(tmp_path):
    job = training(evaluate=lambda model: 1.0, steps=7)
    back = unpack(pack(job, tmp_path))
    assert back.evaluate is None
    assert back.steps == 7
    assert torch.equal(back.model.weight, job.model.weight)
    assert back.optimiser.__code__.co_filename == __file__
    assert (tmp_path / "job.pkl").stat().st_mode & 0o077 == 0
    with (tmp_path / "open.txt").open("w") as file, pytest.raises(UserError, match="training job: data") as caught:
        pack(training(data=map(file.write, [])), tmp_path)
    assert "data=lambda" in caught.value.remedy


JOB = """
import torch, ironlaw as il

def job():
    data = [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))]
    return il.Training(torch.nn.Linear(4, 3), data, torch.nn.CrossEntropyLoss(), lambda p: torch.optim.SGD(p, lr=0.1))
"""


def test_a_file_may_return_a_training(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(JOB)
    found = load(f"{path}:job")
    assert isinstance(found, il.Training)
    assert given(f"{path}:job").name == f"{path}:job"
    with pytest.raises(UserError, match=r"is a training job, wanted an il\.Inference"):
        served(f"{path}:job")


def test_the_job_of_the_documentation_runs(tmp_path):
    text = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    (code,) = re.findall(r"```python\n(# job\.py.*?)```", text, re.DOTALL)
    (tmp_path / "job.py").write_text(code)
    job = Job(given(f"{tmp_path / 'job.py'}:job"))
    assert first_step(job) > 0.0
    assert job.source.batch_size == 64


def test_demo_is_a_job_whose_loader_decodes():
    job = Job(demo("digits-training@8"))
    assert job.source.batch_size == 8
    assert first_step(job) == pytest.approx(math.log(10), abs=0.5)  # ten digits, nothing learnt yet
    image, _ = job.source.dataset[0]
    assert image.shape == (1, 8, 8)
    assert 0.5 < float(image.max()) <= 1.0
