"""The profile names operators as the ledger does, and no time appears or vanishes."""

import pytest
import torch
from torch import nn

from ironlaw.diagnose import merge
from ironlaw.measure.ledger_torch import count_module
from ironlaw.measure.profile_torch import CALL, OBSERVER, profile, shapes_text

torch.set_num_threads(1)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.lstm = nn.Embedding(50, 8), nn.LSTM(8, 16, batch_first=True)
        self.attend, self.out = nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(16, 3)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.table(tokens))
        return self.out(self.attend(hidden, hidden, hidden, need_weights=False)[0]).softmax(-1)


def image():
    parts = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(8, 4), nn.Softmax(-1)).eval()


MODELS = [(image(), torch.randn(2, 3, 16, 16)), (Text().eval(), torch.randint(0, 50, (2, 5)))]


def real(ops):
    return [op for op in ops if op.name not in (OBSERVER, CALL)]


@pytest.mark.parametrize(("module", "x"), MODELS)
def test_profile_and_ledger_meet_by_name_shape_calls_and_kind(module, x):
    with torch.inference_mode():
        ops = real(profile(lambda: module(x), 2))
    counted = {(op.name, op.shape): op for op in count_module(module, (x,), batch=2).ops}
    heavy = [op for op in ops if op.kind not in ("view", "other", "copy")]
    assert heavy
    for op in heavy:
        assert (counted[op.name, op.shape].calls, counted[op.name, op.shape].kind) == (op.calls, op.kind)
    assert {op.kind for op in heavy} >= {"matmul", "softmax"}


@pytest.mark.parametrize(("module", "x"), MODELS)
def test_merging_keeps_every_second_and_times_every_heavy_operator(module, x):
    with torch.inference_mode():
        ops = profile(lambda: module(x), 2)
    ledger = merge(count_module(module, (x,), batch=2), ops)
    assert sum(op.time_s or 0.0 for op in ledger.ops) == pytest.approx(sum(op.time_s for op in real(ops)))
    assert all(op.time_s for op in ledger.ops if op.kind in ("conv", "depthwise", "matmul", "recurrent"))
    assert ledger.profiled_s == next(op.time_s for op in ops if op.name == CALL)
    assert ledger.observer_s is not None


def test_dtype_is_that_of_the_operands():
    layer = nn.Linear(8, 8).bfloat16()
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    with torch.inference_mode():
        product = next(op for op in profile(lambda: layer(x), 1) if op.kind == "matmul")
    assert (product.name, product.dtype, product.flops) == ("addmm", "bfloat16", None)


def test_shapes_are_of_tensors_only():
    assert shapes_text([[2, 3], [], (4,)]) == "2x3,4"


def test_no_calls_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        profile(lambda: None, 0)
