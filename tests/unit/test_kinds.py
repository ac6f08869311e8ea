"""One word for the same work, whichever framework names it."""

import pytest

from ironlaw.measure.kinds import ARITHMETIC, KINDS, QUANTISABLE, aten_kind, aten_name, conv_kind, onnx_kind

PAIRS = [
    ("aten::convolution", "Conv", "conv"),
    ("aten::addmm", "Gemm", "matmul"),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "MultiHeadAttention", "attention"),
    ("aten::add_", "Add", "elementwise"),
    ("aten::native_layer_norm", "LayerNormalization", "norm"),
    ("aten::max_pool2d_with_indices", "MaxPool", "pool"),
    ("aten::mean", "ReduceMean", "reduce"),
    ("aten::_softmax", "Softmax", "softmax"),
    ("aten::embedding", "Gather", "embedding"),
    ("aten::lstm", "LSTM", "recurrent"),
    ("aten::cat", "Concat", "copy"),
    ("aten::view", "Reshape", "view"),
    ("aten::never_seen", "NeverSeen", "other"),
]


@pytest.mark.parametrize(("aten", "op_type", "kind"), PAIRS)
def test_both_frameworks_say_the_same(aten, op_type, kind):
    assert aten_kind(aten) == onnx_kind(op_type) == kind
    assert kind in KINDS


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("aten::add_", "add_"),
        ("aten.add.Tensor", "add"),
        ("add.Tensor", "add"),
        ("quantized::linear", "quantized_linear"),
        ("add", "add"),
    ],
)
def test_bare_names(name, bare):
    assert aten_name(name) == bare


def test_spellings_of_one_operator_and_lookalikes():
    assert {aten_kind(n) for n in ("relu", "aten::relu_", "aten.relu.default")} == {"elementwise"}
    assert aten_kind("quantized::conv2d_relu") == "conv"
    assert aten_kind("aten::__and__") == "elementwise"
    assert (aten_kind("aten::t"), aten_kind("aten::t_"), aten_kind("aten::tan")) == ("view", "view", "elementwise")


def test_every_operator_of_torch_that_has_a_flop_formula_is_arithmetic():
    from torch.utils.flop_counter import flop_registry

    names = {str(packet) for packet in flop_registry if "backward" not in str(packet)}
    assert {name for name in names if name.startswith("aten.") and aten_kind(f"{name}.x") not in ARITHMETIC} == set()


def test_depthwise_needs_several_groups_of_one_channel():
    assert conv_kind(8, 1) == "depthwise"
    assert conv_kind(1, 1) == conv_kind(2, 4) == "conv"
    assert QUANTISABLE <= ARITHMETIC
