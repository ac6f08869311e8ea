"""Whole training steps against closed forms, torch's own counter where it is right, and pins where it is not."""

import math
import resource
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from ironlaw.measure import ledger
from ironlaw.measure.ledger_torch import count
from ironlaw.measure.ledger_training import count_step
from ironlaw.measure.training_step import Step, on_fakes

torch.set_num_threads(1)
SGD = partial(torch.optim.SGD, lr=0.1)


def square(net, *inputs):
    out = net(*inputs)
    return (out[0] if isinstance(out, tuple) else out).float().pow(2).sum()


def step_of(net, *batch, optimiser=SGD, loss=square):
    return Step(model=net, batch=batch, loss=loss, optimiser=optimiser)


def of_kind(counted, *kinds):
    return sum(op.flops for op in counted.ops if op.kind in kinds)


def everything(counted):
    return sorted((op.name, op.shape, op.dtype, op.calls, op.flops, op.bytes_low, op.bytes_high) for op in counted.ops)


CONVS = [
    nn.Conv2d(6, 8, 3),
    nn.Conv2d(6, 8, 3, dilation=2, stride=2, padding=2),
    nn.ConvTranspose2d(6, 8, 3, stride=2),
    nn.Conv2d(6, 8, 3, groups=2),
    nn.Conv2d(6, 12, 3, groups=6),
    nn.ConvTranspose2d(6, 8, 3, groups=2),
]


@pytest.mark.parametrize("module", CONVS)
def test_each_gradient_of_a_convolution_costs_a_forward(module):
    first = nn.Conv2d(6, 6, 1)  # so that the gradient of the input is wanted
    counted = count_step(step_of(nn.Sequential(first, module), torch.randn(2, 6, 10, 10)))
    kind = "depthwise" if module.groups == 6 else "conv"
    forward = next(op.flops for op in reversed(counted.forward.ops) if op.name == "convolution")
    backward = next(op for op in counted.backward.ops if op.name == "convolution_backward")
    assert (backward.kind, backward.flops) == (kind, 2 * forward)
    assert counted.uncounted == ()


@pytest.mark.parametrize("module", CONVS)
def test_torchs_counter_agrees_but_for_groups(module):
    x = torch.randn(2, 6, 10, 10, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        module(x).sum().backward()
    ours = count_step(step_of(nn.Sequential(nn.Identity(), module), x))  # x asks for its gradient
    forward = of_kind(ours.forward, "conv", "depthwise")
    assert of_kind(ours.backward, "conv", "depthwise") == 2 * forward
    wrong = (module.groups - 1) * forward  # torch forgets the groups in the gradient of the weight
    assert counter.get_total_flops() == 3 * forward + wrong


def test_a_linear_layer_with_every_optimiser():
    net, n = nn.Linear(20, 30, bias=False), 600
    per_element = {
        torch.optim.Adam: 7,
        torch.optim.AdamW: 8,
        partial(torch.optim.AdamW, foreach=True): 8,
        partial(torch.optim.AdamW, fused=True): 8,
        partial(torch.optim.Adam, fused=True): 7,
        SGD: 1,
        partial(torch.optim.SGD, lr=0.1, momentum=0.9): 3,
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True): 3,
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True): 3,
        partial(torch.optim.Adagrad, fused=True): 4,
    }
    for optimiser, factor in per_element.items():
        counted = count_step(step_of(net, torch.randn(7, 20), optimiser=optimiser))
        assert of_kind(counted.forward, "matmul") == 2 * 7 * 20 * 30
        assert of_kind(counted.backward, "matmul") == 2 * 7 * 20 * 30  # the weight's; the input wants none
        assert factor * n <= counted.optimiser.flops <= factor * n + 10, optimiser  # and the step's counter
        assert counted.uncounted == ()


def test_bytes_of_lists_and_fused_optimisers():
    net = nn.Sequential(nn.Linear(100, 100, bias=False), nn.Linear(100, 100, bias=False))
    size = 4 * 20_000
    lists = count_step(step_of(net, torch.randn(3, 100), optimiser=partial(SGD, foreach=True)))
    (update,) = lists.optimiser.ops
    assert (update.name, update.bytes_high, update.weights_bytes) == ("_foreach_add_", 3 * size, size)
    fused = count_step(step_of(net, torch.randn(3, 100), optimiser=partial(torch.optim.AdamW, fused=True)))
    update = next(op for op in fused.optimiser.ops if op.name == "_fused_adamw_")
    assert 7 * size <= update.bytes_high <= 7 * size + 64  # reads all four, writes all but the gradient


class Attention(nn.Module):
    def __init__(self, heads, shared):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16 * heads), nn.Linear(16, 16 * shared), nn.Linear(16, 16 * shared)

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (-1, 16)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


@pytest.mark.parametrize(("heads", "shared"), [(8, 8), (8, 2)])
def test_attention_is_four_products_and_five_back(heads, shared):
    counted = count_step(step_of(Attention(heads, shared), torch.randn(2, 10, 16)))
    product = 2 * 2 * heads * 10 * 10 * 16
    assert of_kind(counted.forward, "attention") in (2 * product, 0)  # 0 where torch takes it apart
    if of_kind(counted.forward, "attention"):
        assert of_kind(counted.backward, "attention") == 5 * product
    assert counted.uncounted == ()


def test_torchs_counter_has_nothing_for_the_cpus_attention():
    q = torch.randn(1, 2, 8, 16, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        F.scaled_dot_product_attention(q, q, q).sum().backward()
    assert counter.get_total_flops() == 0


@pytest.mark.parametrize(("cell", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_cost_twice_as_much_back(cell, gates):
    counted = count_step(step_of(nn.Sequential(cell(6, 10)), torch.randn(7, 3, 6)))
    forward = 2 * 7 * 3 * gates * 10 * (6 + 10)
    assert of_kind(counted.forward, "recurrent", "matmul") == forward
    back = of_kind(counted.backward, "recurrent", "matmul")
    unneeded = 2 * 7 * 3 * gates * 10 * 6 + 2 * 3 * gates * 10 * 10  # gradients of the input and the first state
    assert 2 * forward - unneeded <= back <= 2 * forward
    assert counted.uncounted == ()


def test_embeddings_add_a_row_for_each_word():
    words = torch.randint(50, (4, 6))
    plain = count_step(step_of(nn.Embedding(50, 8), words))
    assert of_kind(plain.backward, "embedding") == 4 * 6 * 8
    bag = count_step(step_of(nn.EmbeddingBag(50, 8, mode="sum"), words))
    assert of_kind(bag.backward, "embedding") == 4 * 6 * 8
    table = next(op for op in plain.backward.ops if op.kind == "embedding")
    assert table.bytes_high == 4 * 24 * 8 + 8 * 24 + 4 * 50 * 8  # gradients, words, and the whole table's gradient


def test_a_sparse_gradient_is_counted_without_fakes():
    words = torch.randint(5000, (4, 6))
    net = nn.Embedding(5000, 8, sparse=True)
    counted = count_step(step_of(net, words, optimiser=torch.optim.SparseAdam), fakes=False)
    assert counted.backward.bytes_high < 4 * 5000 * 8
    assert counted.optimiser.dispatches > 0


def test_complex_gradients_are_four_real_products_each():
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.randn(4, 5, dtype=torch.complex64))

        def forward(self, x):
            return (x @ self.a).abs()

    counted = count_step(step_of(Complex(), torch.randn(3, 4, dtype=torch.complex64)))
    assert of_kind(counted.forward, "matmul") == of_kind(counted.backward, "matmul") == 4 * 2 * 3 * 4 * 5


def test_fakes_count_what_really_runs():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5)
    )
    x = torch.randn(2, 3, 8, 8)
    made = step_of(net, x, optimiser=torch.optim.AdamW)
    fake, real = count_step(made, cache_bytes=1 << 20), count_step(made, cache_bytes=1 << 20, fakes=False)
    assert everything(fake.whole) == everything(real.whole)


def test_the_model_comes_back_as_it_was():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {name: (tensor, tensor.clone()) for name, tensor in net.state_dict(keep_vars=True).items()}
    count_step(step_of(net, torch.randn(3, 4)))
    for name, tensor in net.state_dict(keep_vars=True).items():
        assert tensor is before[name][0]
        assert torch.equal(tensor, before[name][1])
    assert all(parameter.grad is None for parameter in net.parameters())
    with pytest.raises(ZeroDivisionError), on_fakes(step_of(net, torch.randn(3, 4))):
        raise ZeroDivisionError
    assert net[0].weight is before["0.weight"][0]


def test_a_step_reads_what_forward_left_in_the_cache():
    net = nn.Linear(100, 100, bias=False)
    big = count_step(step_of(net, torch.randn(4, 100)), cache_bytes=1 << 20)
    small = count_step(step_of(net, torch.randn(4, 100)), cache_bytes=1 << 12)
    assert big.forward.bytes_low == 40_000 + 1600
    assert big.backward.bytes_low == 0  # everything that backward reads is still there
    assert small.backward.bytes_low > 40_000
    assert big.whole.bytes_high == small.whole.bytes_high


def test_what_cannot_be_counted_is_listed_once():
    class Solve(nn.Linear):
        def forward(self, x):
            return torch.linalg.cholesky(self.weight @ self.weight.T + torch.eye(4)) @ x

    counted = count_step(step_of(Solve(4, 4), torch.randn(4, 4)))
    assert "linalg_cholesky_ex" in counted.uncounted
    assert len(set(counted.uncounted)) == len(counted.uncounted)


def test_checkpointing_counts_the_second_forward_in_backward():
    from torch.utils.checkpoint import checkpoint

    inner = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    net = nn.Sequential(nn.Linear(16, 16), inner)
    x = torch.randn(5, 16)
    plain = count_step(step_of(net, x))
    again = count_step(
        step_of(net, x, loss=lambda net, x: checkpoint(net[1], net[0](x), use_reentrant=False).pow(2).sum())
    )
    assert again.forward.flops == plain.forward.flops
    extra = of_kind(again.backward, "matmul") - of_kind(plain.backward, "matmul")
    assert 2 * 5 * 16 * 64 <= extra <= 2 * 2 * 5 * 16 * 64  # torch stops early: the last layer's input is enough


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.into, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (-1, 128)).transpose(1, 2) for one in self.into(x).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))


def test_a_step_larger_than_memory_is_counted_without_any():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.device("meta"):
        net = nn.Sequential(*(Block(8192) for _ in range(4)))
        x = torch.empty(2, 2048, 8192)
    weights = sum(parameter.numel() for parameter in net.parameters())
    assert weights == 4 * 12 * 8192**2  # 3.2 billion: 12.9 GB, and 51 GB with gradients and state
    counted = count_step(step_of(net, x, optimiser=torch.optim.AdamW))
    tokens = 2 * 2048
    assert of_kind(counted.forward, "matmul") == 2 * tokens * weights
    first = 2 * tokens * 3 * 8192**2  # the input of the first layer wants no gradient
    assert of_kind(counted.backward, "matmul") == 2 * (2 * tokens * weights) - first
    assert math.isclose(counted.optimiser.flops, 8 * weights, rel_tol=1e-6)
    assert counted.uncounted == ()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 1e9


def test_a_registered_operator_is_counted_by_what_was_said():
    @torch.library.custom_op("ironlaw_test::paged", mutates_args=())
    def paged(cache: torch.Tensor, rows: int) -> torch.Tensor:
        return cache[:rows].sum(0)

    @paged.register_fake
    def _(cache, rows):
        return cache.new_empty(cache.shape[1:])

    cache = torch.randn(1000, 8)
    assert count(lambda: paged(cache, 10), batch=1).uncounted == ("ironlaw_test::paged",)
    ledger.register(
        "ironlaw_test::paged",
        kind="reduce",
        flops=lambda args, kwargs, out: args[1] * out.numel(),
        bytes=lambda args, kwargs, out: 4.0 * (args[1] + 1) * out.numel(),
    )
    (op,) = [one for one in count(lambda: paged(cache, 10), batch=1).ops if one.kind == "reduce"]
    assert (op.flops, op.bytes_low, op.bytes_high) == (80, 4 * 88, 4 * 88)
    with pytest.raises(ValueError, match="no namespace"):
        ledger.register("paged", flops=lambda args, kwargs, out: 0.0)


def test_quantised_layers_count_their_products():
    net = torch.ao.quantization.quantize_dynamic(
        nn.Sequential(nn.Linear(16, 32), nn.LSTM(32, 8)), {nn.Linear, nn.LSTM}, dtype=torch.qint8
    )
    counted = count(lambda: net(torch.randn(5, 3, 16)), batch=3)
    assert of_kind(counted, "matmul") == 2 * 15 * 16 * 32
    recurrent = [op for op in counted.ops if op.kind == "recurrent"]
    assert [op.flops for op in recurrent] == [2 * 15 * 4 * 8 * (32 + 8)]


class Branches(nn.Module):
    """Looks at values, which fakes do not have."""

    def forward(self, x):
        return x * 2 if x.sum() > 0 else x @ x


@pytest.mark.parametrize(
    ("module", "flops"), [(Branches(), 9 + 1 + 9), (nn.Linear(3, 5, device="meta"), 2 * 3 * 3 * 5)]
)
@pytest.mark.parametrize("free", [1 << 40, 0])
def test_a_form_is_run_or_counted_on_fakes(module, flops, free, monkeypatch):
    monkeypatch.setattr(ledger, "_module", lambda model: module)
    monkeypatch.setattr(ledger, "example_arrays", lambda snapshot, batch: {"x": np.ones((3, 3), np.float32)})
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free))
    model = ledger.ModelFile(form=ledger.Form.EAGER, path="", digest="")
    counted = ledger.ledger_of(model, None, 3, cache_bytes=None)
    assert (counted.flops, counted.source) == (flops, ledger.Form.EAGER)


def test_a_form_that_leaves_no_memory_is_not_run(monkeypatch):
    ran = []
    net = nn.Linear(3, 5)
    net.register_forward_hook(lambda module, args, out: ran.append(type(out).__name__))
    monkeypatch.setattr(ledger, "_module", lambda model: net)
    monkeypatch.setattr(ledger, "example_arrays", lambda snapshot, batch: {"x": np.ones((3, 3), np.float32)})
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10))
    ledger.ledger_of(ledger.ModelFile(form=ledger.Form.EAGER, path="", digest=""), None, 3, cache_bytes=None)
    assert ran == ["FakeTensor"]
