"""Peak memory of training steps: closed forms by hand, fakes against real tensors, both against torch's allocator."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from ironlaw.measure import memory_worker
from ironlaw.measure.kernel_workspace import lstm_workspace
from ironlaw.measure.storages import Part
from ironlaw.measure.training_memory import measured_peak, predicted_peak, watch
from ironlaw.measure.training_step import Step, on_fakes

torch.set_num_threads(1)
SGD = partial(torch.optim.SGD, lr=0.1)
MOMENTUM = partial(SGD, momentum=0.9)


def classify(net, x, y):
    return F.cross_entropy(net(x), y)


def step_of(net, x, optimiser=SGD, loss=None, **more):
    if loss is None:
        return Step(model=net, batch=(x,), loss=lambda net, x: net(x).sum(), optimiser=optimiser, **more)
    return Step(model=net, batch=(x, torch.zeros(len(x), dtype=torch.long)), loss=loss, optimiser=optimiser, **more)


def layers(count, width=256):
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(count)))


ONE = 4 * 256 * 256  # bytes of one such layer
OPTIMISERS = [
    # layers held by the state, and temporaries of the largest moment, counted in layers; three layers in all
    (partial(SGD, foreach=False), 0, 0),
    (partial(MOMENTUM, foreach=False), 3, 0),
    (partial(MOMENTUM, foreach=True), 3, 0),
    # square root, that divided, and the last layer's, which is held a turn longer
    (partial(torch.optim.Adam, foreach=False), 6, 3),
    (partial(torch.optim.AdamW, foreach=False), 6, 3),
    (partial(torch.optim.AdamW, foreach=True), 6, 3),  # square roots of all
    (partial(torch.optim.AdamW, fused=True), 6, 0),
]


@pytest.mark.parametrize(("optimiser", "state", "temporary"), OPTIMISERS)
def test_an_optimisers_peak_by_hand(optimiser, state, temporary):
    found = predicted_peak(step_of(layers(3), torch.randn(1, 256), optimiser))
    small = 4 * 256 * 8  # activations, counters
    assert found.parameters_bytes == 3 * ONE
    assert found.gradients_bytes == 3 * ONE
    assert found.optimiser_bytes == pytest.approx(state * ONE, abs=small)
    assert found.temporaries_bytes == pytest.approx(temporary * ONE, abs=small)
    assert found.tensor_bytes == pytest.approx((6 + state + temporary) * ONE, abs=4 * small)


def test_activations_by_hand():
    net = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Sigmoid(), nn.Sigmoid())
    found = predicted_peak(step_of(net, torch.randn(10_000, 8)))
    one = 4 * 10_000 * 8
    small = 1000
    # each sigmoid keeps its output; the sum needs none, but its gradient is spread out by the first sigmoid's backward
    assert found.activations_bytes == pytest.approx(3 * one, abs=small)
    assert found.inputs_bytes == one
    assert found.moment.startswith("backward")


def test_checkpointing_and_kept_gradients_move_the_peak():
    net = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Sigmoid(), nn.Sigmoid()) for _ in range(8)))
    x = torch.randn(4000, 32)

    def in_segments(net, x, y):
        return F.cross_entropy(checkpoint_sequential(net, 4, x, use_reentrant=False), y)

    plain, saved = (predicted_peak(step_of(net, x, loss=loss)) for loss in (classify, in_segments))
    one = 4 * 4000 * 32
    assert plain.activations_bytes >= 16 * one
    assert saved.activations_bytes <= 9 * one  # three boundaries, and one segment made again
    assert saved.tensor_bytes < 0.65 * plain.tensor_bytes

    wide = step_of(layers(4, 512), torch.randn(2000, 512))
    kept = Step(model=wide.model, batch=wide.batch, loss=wide.loss, optimiser=wide.optimiser, gradients_kept=True)
    assert predicted_peak(kept).gradients_bytes >= predicted_peak(wide).gradients_bytes


class Residual(nn.Module):
    """Gradients meet where the branches part: autograd adds them in place, a dispatch mode does not."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.sigmoid(layer(x))
        return x


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(500, 32), nn.Linear(32, 500, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words):
        return self.head(torch.tanh(self.words(words)))


def convolutions():
    body = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, groups=8), nn.SiLU()]
    return nn.Sequential(*body, nn.MaxPool2d(2), nn.ConvTranspose2d(8, 4, 2), nn.Flatten(), nn.Linear(4 * 49, 5))


def encoder():
    return nn.Sequential(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), nn.Flatten(), nn.Linear(320, 5))


class Last(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell(16, 24, 2, bidirectional=True)

    def forward(self, x):
        return self.cell(x)[0]


def in_bf16(net, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net(x).float().sum()


def recomputed(net, x):
    return checkpoint(net, x, use_reentrant=False).pow(2).mean()


CASES = {
    "residual": (Residual, torch.randn(100, 64), MOMENTUM, None),
    "tied": (Tied, torch.zeros(20, 10, dtype=torch.long), torch.optim.AdamW, None),
    "convolutions": (convolutions, torch.randn(6, 3, 16, 16), MOMENTUM, None),
    "encoder": (encoder, torch.randn(6, 10, 32), torch.optim.Adam, None),
    "lstm": (partial(Last, nn.LSTM), torch.randn(12, 5, 16), torch.optim.AdamW, None),
    "gru": (partial(Last, nn.GRU), torch.randn(4, 5, 16), partial(torch.optim.AdamW, foreach=True), None),
    "autocast": (encoder, torch.randn(6, 10, 32), torch.optim.AdamW, in_bf16),
    "autocast residual": (Residual, torch.randn(100, 64), torch.optim.AdamW, in_bf16),
    "autocast convolutions": (convolutions, torch.randn(6, 3, 16, 16), MOMENTUM, in_bf16),
    "checkpoint": (Residual, torch.randn(100, 64), SGD, recomputed),
}


def made(name):
    build, x, optimiser, loss = CASES[name]
    return Step(model=build(), batch=(x,), loss=loss or (lambda net, x: net(x).pow(2).mean()), optimiser=optimiser)


@pytest.mark.parametrize("name", CASES)
def test_fakes_predict_what_real_tensors_do(name):
    if name == "lstm" and torch.backends.cpu.get_cpu_capability() != "AVX2":
        pytest.skip("the workspace of oneDNN's LSTM was checked on AVX2 only")
    step = made(name)
    with on_fakes(step) as faked:
        predicted = watch(faked).peak()
    measured = watch(step).peak()
    assert predicted.parts == measured.parts
    assert (predicted.operator, predicted.phase) == (measured.operator, measured.phase)


@pytest.mark.parametrize("name", ["residual", "tied", "checkpoint", "gru"])
def test_torchs_allocator_gives_out_what_was_predicted(name):
    state_of_the_generator = 5056  # checkpointing saves it, and no operator makes it
    given = memory_worker._allocated(made(name))
    assert predicted_peak(made(name)).tensor_bytes == pytest.approx(given, abs=state_of_the_generator)


def test_a_tied_weight_is_held_once():
    found = predicted_peak(made("tied"))
    assert found.parameters_bytes == 4 * 500 * 32
    assert found.optimiser_bytes <= 2 * 4 * 500 * 32 + 64


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX2", reason="the layout was checked on AVX2 only")
@pytest.mark.parametrize("sizes", [(1, 1, 16, 16), (64, 4, 16, 16), (20, 3, 300, 64), (7, 5, 64, 250), (9, 2, 40, 256)])
def test_the_workspace_of_an_lstm(sizes):
    steps, batch, width, hidden = sizes
    net = nn.LSTM(width, hidden)
    out = torch.ops.aten.mkldnn_rnn_layer(
        torch.randn(steps, batch, width), *net._flat_weights, torch.zeros(1, batch, hidden)[0],
        torch.zeros(1, batch, hidden)[0], False, [], 2, hidden, 1, True, False, False, True,
    )  # fmt: skip
    assert lstm_workspace(*sizes) == out[3].numel()


def test_a_step_larger_than_memory():
    with torch.device("meta"):
        step = step_of(layers(4, 65_536), torch.empty(1, 65_536), torch.optim.AdamW)
    found = predicted_peak(step)
    assert found.parameters_bytes == 4 * 4 * 65_536**2  # 69 GB
    assert found.tensor_bytes >= 4 * found.parameters_bytes
    assert found.resident_bytes.value == pytest.approx(found.tensor_bytes, rel=0.01)  # all of it is mapped


def test_every_part_is_named_and_none_is_lost():
    found = watch(made("residual")).peak()
    assert set(found.parts) == set(Part)
    assert found.allocated_bytes >= sum(found.parts.values())


@pytest.mark.slow
def test_measured_in_processes_of_its_own():
    build = partial(made, "convolutions")
    predicted, measured = predicted_peak(build()), measured_peak(build, launches=2)
    assert measured.tensor_bytes == predicted.tensor_bytes
    assert measured.allocated_bytes >= measured.tensor_bytes
    assert 0 < measured.resident_bytes.low <= measured.resident_bytes.high
    assert measured.source == "measured"


@pytest.mark.slow
def test_a_build_that_fails_is_told():
    from ironlaw.measure.process import WorkerFailure

    def build():
        raise RuntimeError("no such data")

    with pytest.raises(WorkerFailure, match="no such data"):
        measured_peak(build)
