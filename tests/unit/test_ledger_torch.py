"""FLOPs, bytes and dispatches of torch code against closed forms and torch's own counter."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ironlaw.measure import ledger_flops
from ironlaw.measure.ledger_torch import count, count_module, count_on_fakes

torch.set_num_threads(1)


def op(ledger, kind):
    (found,) = [one for one in ledger.ops if one.kind == kind]
    return found


def of_kind(ledger, *kinds):
    return sum(one.flops for one in ledger.ops if one.kind in kinds)


def torch_flops(module, *inputs):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return counter.get_total_flops()


CONVS = [
    # module, input, closed form: 2 * outputs * (window * channels in a group); transposed: 2 * inputs * ...
    (nn.Conv2d(6, 8, 3), (2, 6, 10, 10), 2 * (2 * 8 * 8 * 8) * 9 * 6),
    (nn.Conv2d(6, 8, 3, groups=2), (2, 6, 10, 10), 2 * (2 * 8 * 8 * 8) * 9 * 3),
    (nn.Conv2d(6, 8, 3, dilation=2, stride=2, padding=2), (2, 6, 10, 10), 2 * (2 * 8 * 5 * 5) * 9 * 6),
    (nn.Conv1d(4, 5, 7, padding=3), (3, 4, 20), 2 * (3 * 5 * 20) * 7 * 4),
    (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4), 2 * (3 * 27) * 8 * 2),
    (nn.ConvTranspose2d(6, 8, 3, stride=2), (2, 6, 5, 5), 2 * (2 * 6 * 25) * 9 * 8),
    (nn.ConvTranspose2d(6, 8, 3, groups=2), (2, 6, 5, 5), 2 * (2 * 6 * 25) * 9 * 4),
]


@pytest.mark.parametrize(("module", "shape", "expected"), CONVS)
def test_convolutions(module, shape, expected):
    x = torch.randn(shape)
    ledger = count_module(module, (x,), batch=shape[0])
    assert op(ledger, "conv").flops == expected == torch_flops(module, x)
    assert op(ledger, "conv").weights_bytes == 4 * sum(p.numel() for p in module.parameters())
    assert ledger.uncounted == ()


@pytest.mark.parametrize("module", [nn.Conv2d(6, 12, 3, groups=6), nn.ConvTranspose2d(6, 6, 3, groups=6)])
def test_depthwise_is_told_from_grouped(module):
    assert op(count_module(module, (torch.randn(1, 6, 8, 8),), batch=1), "depthwise").flops > 0


def test_linear_and_its_bytes():
    x = torch.randn(5, 7, 16)
    ledger = count_module(nn.Linear(16, 32), (x,), batch=5)
    product = op(ledger, "matmul")
    assert product.flops == 2 * 35 * 16 * 32
    assert product.bytes_high == 4 * (35 * 16 + 16 * 32 + 32 + 35 * 32)
    assert product.bytes_low == 4 * (35 * 16 + 16 * 32 + 32)  # the output stays in a cache without end


@pytest.mark.parametrize("heads", [(8, 8), (8, 2)])
def test_attention_grouped_or_not(heads):
    q = torch.randn(2, heads[0], 10, 16)
    k, v = (torch.randn(2, heads[1], 12, 16) for _ in range(2))
    ledger = count(
        lambda: nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=heads[0] != heads[1]), batch=2
    )
    assert of_kind(ledger, "attention", "matmul") == 2 * 2 * 8 * 10 * 12 * (16 + 16)


def test_fused_multi_head_attention_counts_as_its_parts():
    net = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    fused = count(lambda: net(x, x, x, need_weights=False), batch=2)
    net.train()  # the slow path
    parts = count(lambda: net(x, x, x, need_weights=False), batch=2)
    assert op(fused, "matmul").name == "_native_multi_head_attention"
    assert fused.flops == of_kind(parts, "attention", "matmul") == 2 * 10 * 16 * 64 + 4 * 2 * 5 * 5 * 16


def test_encoder_layer_fast_path_counts_as_the_slow_one():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    x = torch.randn(2, 5, 16)
    slow = count_module(layer, (x,), batch=2)
    fast = count_module(layer.eval(), (x,), batch=2)
    assert "_transformer_encoder_layer_fwd" in {one.name for one in fast.ops}
    assert fast.flops == of_kind(slow, "attention", "matmul")


@pytest.mark.parametrize(("cell", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent(cell, gates, bidirectional):
    net = cell(6, 10, num_layers=2, bidirectional=bidirectional)
    ways = 2 if bidirectional else 1
    ledger = count_module(net, (torch.randn(7, 3, 6),), batch=3)
    steps = 7 * 3
    expected = 2 * steps * gates * 10 * ways * ((6 + 10) + (10 * ways + 10))
    assert of_kind(ledger, "recurrent", "matmul") == expected
    assert ledger.uncounted == ()


def test_embedding_reads_only_its_rows():
    table = nn.Embedding(1000, 8)
    looked = op(count_module(table, (torch.zeros(4, dtype=torch.long),), batch=4), "embedding")
    assert looked.flops == 0
    assert looked.bytes_high == 4 * 8 * 4 + 4 * 8 + 4 * 8 * 4
    assert looked.weights_bytes == 4 * 8 * 4


def test_embedding_bag_adds_its_rows():
    bag = nn.EmbeddingBag(100, 8, mode="sum")
    ledger = count_module(bag, (torch.zeros(3, 5, dtype=torch.long),), batch=3)
    assert op(ledger, "embedding").flops == 3 * 5 * 8


def test_elementwise_reduce_softmax_norm_pool():
    x = torch.randn(2, 4, 8, 8)
    n = x.numel()
    cases = {
        "elementwise": (lambda: torch.relu(x), n),
        "reduce": (x.sum, n),
        "softmax": (lambda: x.softmax(-1), 5 * n),
        "norm": (lambda: nn.functional.layer_norm(x, (8,)), 7 * n),
        "pool": (lambda: nn.functional.max_pool2d(x, 2), n),
    }
    for kind, (call, expected) in cases.items():
        assert op(count(call, batch=2), kind).flops == expected, kind


def test_views_move_nothing_but_are_dispatched():
    x = torch.randn(4, 6)
    ledger = count(lambda: x.t().unsqueeze(0).expand(3, 6, 4)[1:], batch=4)
    assert {one.kind for one in ledger.ops} == {"view"}
    assert (ledger.bytes_high, ledger.dispatches) == (0, 4)


def test_in_place_reads_and_writes_and_fill_only_writes():
    x = torch.randn(10)
    assert count(lambda: x.add_(1), batch=1).bytes_high == 80
    assert count(x.zero_, batch=1).bytes_high == 40
    assert count(lambda: x.copy_(torch.ones(1).expand(10)), batch=1).ops[-1].bytes_high == 44


def test_the_low_bound_follows_the_cache():
    x = torch.randn(1000)

    def chain():
        y = x
        for _ in range(5):
            y = y * 2
        return y

    assert count(chain, batch=1, cache_bytes=1 << 20).bytes_low == 4000
    assert count(chain, batch=1).bytes_high == 5 * 8000
    small = count(chain, batch=1, cache_bytes=1000).bytes_low
    assert small == pytest.approx(5 * 8000, rel=0.1)  # nothing is kept: what stays at last is not written back


def test_weights_that_fit_are_read_once():
    layer = nn.Linear(100, 100, bias=False)
    x = torch.randn(1, 100)
    twice = lambda: layer(layer(x))  # noqa: E731
    weights = list(layer.parameters())
    assert count(twice, batch=1, weights=weights, cache_bytes=1 << 20).bytes_low == 40_000 + 400
    assert count(twice, batch=1, weights=weights, cache_bytes=10_000).bytes_low > 80_000


def test_parts_of_one_flat_buffer_are_each_a_first_touch():
    flat = torch.randn(4, 100)
    ledger = count(lambda: [flat[i] * 2 for i in range(4)], batch=1)
    assert ledger.bytes_low == 1600


def test_inference_mode_inside_the_model_changes_nothing():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    x = torch.randn(1, 3, 8, 8)

    def frozen():
        with torch.inference_mode():
            return net(x)

    weights = list(net.parameters())
    plain, inside = count_module(net, (x,), batch=1), count(frozen, batch=1, weights=weights)
    key = lambda ledger: sorted((o.name, o.shape, o.flops, o.bytes_high) for o in ledger.ops if o.kind != "view")  # noqa: E731
    assert key(plain) == key(inside)


def test_fakes_give_the_same_ledger():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    x = torch.randn(2, 3, 8, 8)
    real, fake = count_module(net, (x,), batch=2), count_on_fakes(net, (x,), batch=2)
    assert fake.ops == real.ops


def test_a_model_larger_than_memory_can_be_counted():
    with torch.device("meta"):
        net = nn.Linear(1 << 20, 1 << 20, bias=False)
    ledger = count_on_fakes(net, (torch.empty(1, 1 << 20),), batch=1)
    assert ledger.flops == 2 * (1 << 40)
    assert op(ledger, "matmul").weights_bytes == 4 * (1 << 40)


def test_complex_products_are_four_real_ones():
    a = torch.randn(3, 4, dtype=torch.complex64)
    assert count(lambda: a @ a.T, batch=1).ops[-1].flops == 4 * 2 * 3 * 4 * 3


def test_int8_products():
    a = torch.ones(32, 64, dtype=torch.int8)
    product = op(count(lambda: torch._int_mm(a, a.t()), batch=1), "matmul")
    assert (product.flops, product.dtype) == (2 * 32 * 64 * 32, "int8")


def test_a_custom_operator_is_listed_until_it_is_registered():
    @torch.library.custom_op("ironlaw_test::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    x = torch.randn(10)
    before = count(lambda: cube(x), batch=1)
    assert before.uncounted == ("ironlaw_test::cube",)
    ledger_flops.counts("ironlaw_test::cube", kind="elementwise")(lambda args, kwargs, out: 2.0 * out.numel())
    after = count(lambda: cube(x), batch=1)
    assert (after.uncounted, op(after, "elementwise").flops) == ((), 20)


def test_a_kind_that_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="kind 'magic'"):
        ledger_flops.counts("a::b", kind="magic")


def test_same_operator_and_shape_are_added_up():
    x = torch.randn(4)
    ledger = count(lambda: torch.relu(torch.relu(x)), batch=1)
    (relu,) = ledger.ops
    assert (relu.calls, relu.flops, relu.shape, relu.dtype) == (2, 8, "4", "float32")
