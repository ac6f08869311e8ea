"""The ledger of ONNX graphs: closed forms, the torch ledger of the same model, QDQ graphs."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ironlaw.measure.ledger import ledger_of
from ironlaw.measure.ledger_onnx import count_onnx
from ironlaw.measure.ledger_torch import count_module
from ironlaw.records import Kind, ModelFile, Snapshot, TensorSpec, UserError

RNG = np.random.default_rng(0)


def weight(name, *shape, dtype=np.float32):
    return numpy_helper.from_array(np.ones(shape, dtype), name)


def write(path, nodes, weights, inputs, outputs=("y",), opset=20, domains=()):
    declared = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(nodes, "g", declared, results, weights)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def arrays(**shapes):
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def one(tmp_path, node, weights=(), x=(2, 6, 8, 8), batch=2, **more):
    path = write(tmp_path / "m.onnx", [node], list(weights), {"x": ["N", *x[1:]]}, **more)
    (found,) = count_onnx(path, arrays(x=x), batch=batch).ops
    return found


N = helper.make_node
CASES = [
    # node, weights, kind, FLOPs for x of 2x6x8x8
    (N("Conv", ["x", "w"], ["y"]), [weight("w", 4, 6, 3, 3)], "conv", 2 * (2 * 4 * 36) * 6 * 9),
    (N("Conv", ["x", "w"], ["y"], group=2), [weight("w", 4, 3, 3, 3)], "conv", 2 * (2 * 4 * 36) * 3 * 9),
    (N("Conv", ["x", "w"], ["y"], group=6), [weight("w", 6, 1, 3, 3)], "depthwise", 2 * (2 * 6 * 36) * 9),
    (N("ConvTranspose", ["x", "w"], ["y"]), [weight("w", 6, 4, 3, 3)], "conv", 2 * (2 * 6 * 64) * 4 * 9),
    (N("MatMul", ["x", "w"], ["y"]), [weight("w", 8, 5)], "matmul", 2 * 2 * 6 * 8 * 8 * 5),
    (N("Einsum", ["x", "w"], ["y"], equation="nchw,wd->nchd"), [weight("w", 8, 5)], "matmul", 2 * 2 * 6 * 8 * 8 * 5),
    (N("Relu", ["x"], ["y"]), [], "elementwise", 768),
    (N("Softmax", ["x"], ["y"]), [], "softmax", 5 * 768),
    (N("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2]), [], "pool", 768),
    (N("GlobalAveragePool", ["x"], ["y"]), [], "pool", 768),
    (N("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]), [], "copy", 0),
]


@pytest.mark.parametrize(("node", "weights", "kind", "expected"), CASES)
def test_closed_forms(tmp_path, node, weights, kind, expected):
    found = one(tmp_path, node, weights)
    assert (found.kind, found.flops) == (kind, expected)
    assert found.weights_bytes == 4 * sum(np.prod(w.dims) for w in weights)


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent(tmp_path, op_type, gates):
    node = N(op_type, ["x", "w", "r"], ["y"], hidden_size=5)
    weights = [weight("w", 1, gates * 5, 3), weight("r", 1, gates * 5, 5)]
    found = one(tmp_path, node, weights, x=(7, 2, 3))
    assert (found.kind, found.flops) == ("recurrent", 2 * 14 * gates * 5 * (3 + 5))


def test_gemm_transposed_left(tmp_path):
    path = write(tmp_path / "m.onnx", [N("Gemm", ["x", "w"], ["y"], transA=1)], [weight("w", 4, 5)], {"x": [4, 3]})
    (found,) = count_onnx(path, arrays(x=(4, 3)), batch=1).ops
    assert found.flops == 2 * 3 * 4 * 5


def test_shapes_behind_contrib_operators_come_from_a_run(tmp_path):
    nodes = [
        N("FusedMatMul", ["x", "w"], ["h"], domain="com.microsoft", transA=0),
        N("MatMul", ["h", "v"], ["y"]),
    ]
    weights = [weight("w", 8, 5), weight("v", 5, 3)]
    path = write(tmp_path / "m.onnx", nodes, weights, {"x": ["N", 8]}, domains=("com.microsoft",))
    ledger = count_onnx(path, arrays(x=(4, 8)), batch=4)
    assert ledger.flops == 2 * 4 * (8 * 5 + 5 * 3)
    assert ledger.uncounted == ()


def test_what_depends_on_constants_alone_is_folded(tmp_path):
    nodes = [
        N("Shape", ["x"], ["s"]),
        N("Transpose", ["w"], ["wt"], perm=[1, 0]),
        N("MatMul", ["x", "wt"], ["h"]),
        N("Reshape", ["h", "s2"], ["y"]),
    ]
    weights = [weight("w", 5, 8), numpy_helper.from_array(np.array([-1], np.int64), "s2")]
    path = write(tmp_path / "m.onnx", nodes, weights, {"x": ["N", 8]})
    ledger = count_onnx(path, arrays(x=(4, 8)), batch=4)
    assert [op.name for op in ledger.ops] == ["MatMul", "Reshape"]
    assert ledger.ops[0].weights_bytes == 160
    assert ledger.ops[1].bytes_high == 0


def test_control_flow_is_listed_not_zero(tmp_path):
    inner = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])]
    branch = helper.make_graph([N("Constant", [], ["z"], value=weight("", 1))], "b", [], inner)
    nodes = [N("ReduceSum", ["x"], ["s"], keepdims=0), N("Cast", ["s"], ["c"], to=TensorProto.BOOL)]
    nodes.append(N("If", ["c"], ["y"], then_branch=branch, else_branch=branch))
    path = write(tmp_path / "m.onnx", nodes, [], {"x": [2]})
    assert count_onnx(path, arrays(x=(2,)), batch=1).uncounted == ("If",)


def test_an_operator_that_no_runtime_here_knows_is_listed(tmp_path):
    nodes = [N("Mystery", ["x"], ["h"], domain="their.domain"), N("MatMul", ["h", "w"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, [weight("w", 8, 5)], {"x": [2, 8]}, domains=("their.domain",))
    ledger = count_onnx(path, arrays(x=(2, 8)), batch=2)
    assert ledger.uncounted == ("Mystery", "MatMul")
    assert ledger.ops[0].kind == "other"


def test_the_same_model_counts_as_in_torch(tmp_path):
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(8 * 144, 10)
    ).eval()
    x = torch.randn(2, 3, 16, 16)
    path = tmp_path / "m.onnx"
    torch.onnx.export(net, (x,), path, dynamo=True, external_data=False, verbose=False)
    name = onnx.load(path).graph.input[0].name
    graph, eager = count_onnx(path, {name: x.numpy()}, batch=2), count_module(net, (x,), batch=2)
    for kind in ("conv", "depthwise", "matmul", "elementwise"):
        mine, theirs = ([op for op in ledger.ops if op.kind == kind] for ledger in (graph, eager))
        assert [op.flops for op in mine] == [op.flops for op in theirs]
        assert [op.weights_bytes for op in mine] == [op.weights_bytes for op in theirs]
        assert [op.bytes_high for op in mine] == [op.bytes_high for op in theirs]


def quantised(tmp_path):
    """x -> Q -> DQ -> Conv -> Relu -> Q -> DQ -> Conv -> y, weights in int8."""
    scale, zero = weight("s"), numpy_helper.from_array(np.array(0, np.int8), "z")

    def qdq(name, after):
        return [
            N("QuantizeLinear", [name, "s", "z"], [f"{name}_q"]),
            N("DequantizeLinear", [f"{name}_q", "s", "z"], [after]),
        ]

    nodes = [
        *qdq("x", "xd"),
        N("DequantizeLinear", ["w", "s", "z"], ["wd"]),
        N("Conv", ["xd", "wd"], ["h"]),
        N("Relu", ["h"], ["hr"]),
        *qdq("hr", "hd"),
        N("DequantizeLinear", ["v", "s", "z"], ["vd"]),
        N("Conv", ["hd", "vd"], ["y"]),
    ]
    weights = [scale, zero, weight("w", 4, 6, 1, 1, dtype=np.int8), weight("v", 3, 4, 1, 1, dtype=np.int8)]
    return write(tmp_path / "q.onnx", nodes, weights, {"x": ["N", 6, 8, 8]})


def test_a_quantised_graph(tmp_path):
    ledger = count_onnx(quantised(tmp_path), arrays(x=(2, 6, 8, 8)), batch=2)
    ops = {(op.name, op.shape): op for op in ledger.ops}
    first = ops["Conv", "2x6x8x8,4x6x1x1"]
    last = ops["Conv", "2x4x8x8,3x4x1x1"]
    assert (first.dtype, last.dtype) == ("int8", "int8")
    assert first.bytes_high == 2 * 6 * 64 + 24 + 2 * 4 * 64  # int8 in, int8 weights, int8 out
    assert last.bytes_high == 2 * 4 * 64 + 12 + 4 * 2 * 3 * 64  # the last output stays float
    kinds = {(op.name, op.shape): op.kind for op in ledger.ops}
    assert kinds["QuantizeLinear", "2x6x8x8"] == "elementwise"  # the input is really converted
    assert kinds["QuantizeLinear", "2x4x8x8"] == kinds["Relu", "2x4x8x8"] == "view"
    assert {op.kind for op in ledger.ops if op.name == "DequantizeLinear"} == {"view"}


def test_integer_operators_are_int8(tmp_path):
    graph = helper.make_graph(
        [N("MatMulInteger", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [4, 5])],
        [weight("w", 8, 5, dtype=np.int8)],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    (found,) = count_onnx(path, {"x": np.ones((4, 8), np.uint8)}, batch=4).ops
    assert (found.dtype, found.flops, found.bytes_high) == ("int8", 2 * 4 * 8 * 5, 32 + 40 + 80)


def test_bytes_follow_the_cache(tmp_path):
    nodes = [N("Relu", ["x"], ["a"]), N("Sigmoid", ["a"], ["b"]), N("Tanh", ["b"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, [], {"x": ["N", 100]})
    feeds = arrays(x=(10, 100))
    assert count_onnx(path, feeds, batch=10, cache_bytes=1 << 20).bytes_low == 4000
    assert count_onnx(path, feeds, batch=10).bytes_high == 3 * 8000
    assert count_onnx(path, feeds, batch=10, cache_bytes=1000).bytes_low > 3 * 4000


def test_bad_files_and_shapes(tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model, whatever it says")
    with pytest.raises(UserError, match="not a readable ONNX model"):
        count_onnx(broken, {}, batch=1)
    path = write(tmp_path / "m.onnx", [N("Relu", ["x"], ["y"])], [], {"x": [4, 3]})
    with pytest.raises(UserError, match="fixed to 4, not 2"):
        count_onnx(path, arrays(x=(2, 3)), batch=2)
    with pytest.raises(UserError, match="has no example"):
        count_onnx(path, {}, batch=2)


# ---------------------------------------------------------------- by form


def snapshot(tmp_path, form, path):
    spec = TensorSpec(name="x", shape=(2, 3), dtype="float32")
    return Snapshot(
        digest="d",
        kind=Kind.INFERENCE,
        name="n",
        folder=str(tmp_path),
        model=ModelFile(form=form, path=str(path), digest="d"),
        inputs=(spec,),
        outputs=(),
        batch=2,
        dynamic=True,
        parameters=1,
        weights_bytes=4,
    )


def test_every_form_of_one_model_counts_the_same(tmp_path):
    import cloudpickle

    net = nn.Linear(3, 5).eval()
    x = torch.randn(2, 3)
    np.savez(tmp_path / "example.npz", x=x.numpy())
    paths = {form: tmp_path / "forms" / form for form in ("eager", "exported", "onnx")}
    for folder in paths.values():
        folder.mkdir(parents=True)
    (paths["eager"] / "model.pkl").write_bytes(cloudpickle.dumps(net))
    free = torch.export.Dim("n", min=1, max=64)
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=({0: free},)), paths["exported"] / "model.pt2")
    nodes = [N("Gemm", ["x", "w", "b"], ["y"], transB=1)]
    write(paths["onnx"] / "model.onnx", nodes, [weight("w", 5, 3), weight("b", 5)], {"x": ["N", 3]})
    for form, folder in paths.items():
        record = snapshot(tmp_path, form, folder)
        ledger = ledger_of(record.model, record, 7, cache_bytes=1 << 20)
        assert ledger.flops == 2 * 7 * 3 * 5
        assert (ledger.batch, ledger.source) == (7, form)
        assert ledger.bytes_low == 4 * (7 * 3 + 15 + 5)
    other = ModelFile(form="openvino", path=str(tmp_path), digest="d")
    record = snapshot(tmp_path, "eager", paths["eager"])
    assert ledger_of(other, record, 2, cache_bytes=None).flops == 2 * 2 * 3 * 5


def test_a_form_that_nobody_can_count_is_refused(tmp_path):
    record = snapshot(tmp_path, "openvino", tmp_path)
    with pytest.raises(UserError, match="cannot be counted"):
        ledger_of(record.model, record, 1, cache_bytes=None)
