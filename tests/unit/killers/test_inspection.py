"""What an inspection sees in real torch modules: subnormals, zeros, threads, compiled code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn.utils import prune

from ironlaw.measure.inspection import busy_threads, inspect_torch, pools
from ironlaw.measure.inspection_onnx import saturating_pairs
from ironlaw.measure.inspection_values import flushed_speedup, flushes_subnormals, values_of
from ironlaw.records import Inspection, from_json, to_json


def look(module: torch.nn.Module, *inputs: torch.Tensor, vary: bool = False) -> Inspection:
    module.eval()

    def call(*given: torch.Tensor) -> object:
        with torch.inference_mode():
            return module(*given)

    return inspect_torch(module, call, inputs, vary=vary)


class Decays(torch.nn.Module):
    """A state that fades away, between no modules: only its values show it."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = x * self.factor
        return x


def test_subnormal_activations_are_seen_between_modules() -> None:
    sick, cured = look(Decays(1e-5), torch.rand(64, 64)), look(Decays(0.9), torch.rand(64, 64))
    assert sick.subnormal_activations == pytest.approx(1 / 8, abs=0.03), "one step of eight lies below 1e-38"
    assert sick.flushed_speedup is not None
    assert cured.subnormal_activations == 0.0
    assert cured.flushed_speedup is None, "nothing to flush, nothing timed"


def test_subnormal_weights_are_counted() -> None:
    layer = torch.nn.Linear(100, 100, bias=False)
    with torch.no_grad():
        layer.weight[:25] = 1e-40
    assert look(layer, torch.rand(1, 100)).subnormal_weights == pytest.approx(0.25)


def test_half_precision_subnormals_are_ordinary_numbers() -> None:
    small = torch.nn.Linear(8, 8, bias=False).half()
    with torch.no_grad():
        small.weight.fill_(1e-7)
    assert look(small, torch.rand(1, 8).half()).subnormal_weights == 0.0


def test_flushing_is_seen_and_put_back() -> None:
    assert not flushes_subnormals()
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormals")
    try:
        assert flushes_subnormals()
        assert look(Decays(1e-5), torch.rand(8, 8)).flushed_speedup is None
    finally:
        torch.set_flush_denormal(False)
    threads = torch.get_num_threads()
    assert (flushed_speedup(lambda: torch.rand(8)) or 0.0) > 0.0
    assert not flushes_subnormals()
    assert torch.get_num_threads() == threads


def test_zeros_are_those_that_the_kernel_multiplies() -> None:
    dense = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8, bias=False))
    assert look(dense, torch.rand(4, 64)).zero_share == pytest.approx(0.0, abs=0.01)
    for layer in (dense[0], dense[2]):
        prune.random_unstructured(layer, "weight", amount=0.75)
    masked = look(dense, torch.rand(4, 64))
    assert masked.zero_share == pytest.approx(0.75, abs=0.01), "the mask is applied in a hook"
    for layer in (dense[0], dense[2]):
        prune.remove(layer, "weight")
    baked = look(dense, torch.rand(4, 64))
    assert baked.zero_share == pytest.approx(0.75, abs=0.01)
    assert dict(baked.zeros) == pytest.approx({"0.weight": 0.75, "2.weight": 0.75}, abs=0.01)


def test_zeros_of_activations_do_not_count() -> None:
    after = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
    with torch.no_grad():
        after[0].bias.fill_(-100.0)
    assert look(after, torch.rand(8, 32)).zero_share < 0.01


def test_widths_and_pools_are_named() -> None:
    seen = look(torch.nn.Sequential(torch.nn.Conv2d(3, 65, 3), torch.nn.ReLU()), torch.rand(1, 3, 8, 8))
    assert seen.widths == (("0.in", 3), ("0.out", 65))
    assert dict(pools())["torch"] == torch.get_num_threads()
    assert any(name.startswith("openmp") for name, _ in seen.pools)


def test_threads_that_work_are_counted() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel keeps no account of CPU time by thread (/proc/self/schedstat)")
    stop, work = threading.Event(), np.ones((256, 256))

    def spin() -> None:
        while not stop.is_set():
            np.sort(work, axis=None)  # releases the interpreter's lock

    helpers = [threading.Thread(target=spin) for _ in range(3)]
    alone = busy_threads(lambda: np.sort(work, axis=None))
    for one in helpers:
        one.start()
    try:
        together = busy_threads(lambda: stop.wait(0.3))
    finally:
        stop.set()
        for one in helpers:
            one.join()
    assert alone == 1
    assert together is not None
    assert together > 1, "at least two of the three, however busy this machine is"


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    from torch._dynamo import convert_frame
    from torch._dynamo.utils import counters

    def forget() -> None:
        torch._dynamo.reset()
        counters.clear()
        convert_frame.FRAME_COMPILE_COUNTER.clear()

    forget()
    yield
    forget()


class Compiled(torch.nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.inside: Callable[..., Any] = torch.compile(lambda x: torch.sin(x) * x.shape[0], backend="eager", **how)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inside(x)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(("how", "again"), [({"dynamic": False}, 4), ({"dynamic": True}, 0), ({}, 1)])
def test_compiling_for_every_batch_size(how: dict[str, Any], again: int) -> None:
    seen = look(Compiled(**how), torch.rand(4, 8), vary=True)
    assert seen.shapes == 5
    assert seen.recompiles == again


@pytest.mark.usefixtures("fresh_compiler")
def test_graph_breaks_are_counted_and_fixed_shapes_left_alone() -> None:
    broken = torch.compile(lambda x: x + 1 if x.sum().item() > 0 else x, backend="eager")

    class Reads(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return broken(x)

    seen = look(Reads(), torch.rand(4, 8))
    assert seen.graph_breaks >= 1
    assert seen.shapes == 1
    assert seen.recompiles == 0


class OneBatch(torch.nn.Module):
    """Compiled inside and pinned to its batch: it never meets another."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: Callable[..., Any] = torch.compile(lambda x: x * 2, backend="eager", dynamic=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inside(x).view(4, 8)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_model_of_one_batch_size_is_not_asked_twice() -> None:
    assert look(OneBatch(), torch.rand(4, 8), vary=True).shapes == 1


def test_what_was_seen_survives_the_store() -> None:
    seen = look(torch.nn.Linear(4, 4), torch.rand(2, 4))
    assert from_json(Inspection, to_json(seen)) == seen


def test_reading_values_changes_nothing() -> None:
    layer, given = torch.nn.Linear(16, 16), torch.rand(2, 16)
    before = layer(given)
    values_of(layer, lambda: layer(given))
    assert torch.equal(layer(given), before)


# ---------------------------------------------------------------- ONNX


def int8_file(path: Path, activation: type, largest: int) -> Path:
    weight = np.zeros((4, 4), np.int8)
    weight[0, 0] = largest
    constants = {
        "one": np.float32(1.0),
        "zero": activation(0),
        "signed": np.int8(0),
        "weight": weight,
        "x_zero": activation(0),
    }
    node = helper.make_node(
        "QLinearMatMul", ["x", "one", "x_zero", "weight", "one", "signed", "one", "zero"], ["y"], name="product"
    )
    kind = TensorProto.UINT8 if activation is np.uint8 else TensorProto.INT8
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, [1, 4])],
        [helper.make_tensor_value_info("y", kind, [1, 4])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize(
    ("activation", "largest", "expected"),
    [(np.uint8, -127, 1), (np.uint8, 127, 1), (np.uint8, 64, 0), (np.int8, 127, 0)],
)
def test_products_that_saturate_by_type_and_range(
    tmp_path: Path, activation: type, largest: int, expected: int
) -> None:
    assert saturating_pairs(int8_file(tmp_path / "m.onnx", activation, largest)) == expected


@pytest.mark.parametrize(("reduce_range", "expected"), [(False, 1), (True, 0)])
def test_products_of_a_dynamically_quantised_model(tmp_path: Path, reduce_range: bool, expected: int) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    rng = np.random.default_rng(0)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 16])],
        [numpy_helper.from_array(rng.standard_normal((32, 16)).astype(np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, str(tmp_path / "float.onnx"))
    out = tmp_path / "int8.onnx"
    quantize_dynamic(tmp_path / "float.onnx", out, weight_type=QuantType.QInt8, reduce_range=reduce_range)
    assert saturating_pairs(out) == expected
