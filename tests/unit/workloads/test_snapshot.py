"""What crosses to workers: shapes of models and inputs, the address, and a pickle that needs no file of the user's."""

import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.utils import _pytree as pytree

from ironlaw import metrics
from ironlaw.records import UserError
from ironlaw.workloads.check import axes_of, predict_of
from ironlaw.workloads.inference import Inference
from ironlaw.workloads.load import load
from ironlaw.workloads.opening import open_model
from ironlaw.workloads.snapshot import calibration, evaluator, example, read_snapshot, rebuild, snapshot

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


class Wide(nn.Module):
    """Keywords in, a nested structure out."""

    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, ids, mask=None, flag=True):
        out = self.inner(ids)
        return {"logits": out, "loss": None, "parts": [out * mask, (ids,)], "name": "wide"}


def load_pickle(taken):
    import pickle

    return pickle.loads(Path(taken.model.path).read_bytes())


def test_workers_see_tensors_by_position_whatever_the_user_has(tmp_path):
    mask = torch.tensor([[1.0], [0.5]])
    taken = snapshot(Inference(Wide(), {"ids": X, "mask": mask}), tmp_path, "wide")
    assert [s.name for s in taken.inputs] == ["ids", "mask"]
    assert [s.name for s in taken.outputs] == ["logits", "parts_0", "parts_1_0"]
    found = load_pickle(taken)(X, mask)
    wanted = Wide().eval()(ids=X, mask=mask)
    assert type(found) is tuple
    assert torch.allclose(found[0], wanted["logits"])
    assert torch.allclose(found[1], wanted["parts"][0])


def test_outputs_come_back_in_the_users_structure():
    mask = torch.tensor([[1.0], [0.5]])
    inference = Inference(Wide(), {"ids": X, "mask": mask})
    local = open_model(inference)
    again = rebuild(inference).outputs_from_arrays(list(local.outputs), mask)
    wanted = Wide().eval()(ids=X, mask=mask)
    assert pytree.tree_structure(again) == pytree.tree_structure(wanted)
    assert again["name"] == "wide"
    assert again["loss"] is None
    assert torch.allclose(again["parts"][0], wanted["parts"][0])
    arrays = rebuild(inference).outputs_from_arrays(list(local.outputs), X.numpy())
    assert isinstance(arrays["logits"], np.ndarray)


@pytest.mark.parametrize(
    "call",
    [
        lambda p, m: p(X, m),
        lambda p, m: p(ids=X, mask=m),
        lambda p, m: p(X, mask=m),
        lambda p, m: p({"mask": m, "ids": X}),
        lambda p, m: p((X, m)),
        lambda p, m: p(X.double(), m.numpy()),
    ],
)
def test_predict_is_called_as_the_model_is(call):
    mask = torch.tensor([[1.0], [0.5]])
    local = open_model(Inference(Wide(), {"ids": X, "mask": mask}))
    found = call(predict_of(local, axes_of(local)), mask)
    assert torch.allclose(torch.as_tensor(found["logits"]), Wide().eval()(ids=X, mask=mask)["logits"])


@pytest.mark.parametrize(
    ("args", "kwargs", "word"),
    [
        ((X,), {}, "without ['mask']"),
        ((X, X, X), {}, "3 inputs"),
        ((X, X), {"mask": X}, "['mask'] twice"),
        ((X,), {"maks": X}, "unknown ['maks']"),
        ((X.long(), "a"), {}, "is str"),
        ((X * 1j, X), {}, "complex64"),
    ],
)
def test_predict_refuses_what_the_model_would_not_know(args, kwargs, word):
    inference = Inference(Wide(), {"ids": X, "mask": torch.ones(2, 1)})
    with pytest.raises(Exception, match=r"is|called") as caught:
        rebuild(inference).inputs_to_arrays(args, kwargs)
    assert word in str(caught.value)


def test_the_users_model_is_left_as_it_was(tmp_path):
    model = net().train()
    model[1].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    taken = snapshot(Inference(model, X), tmp_path, "m")
    assert [part.training for part in model] == [True, False, True]
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not load_pickle(taken).training


# ---------------------------------------------------------------- the address


def test_same_content_is_written_once(tmp_path):
    first = snapshot(Inference(net(), X), tmp_path, "a")
    stamp = Path(first.model.path).stat().st_mtime_ns
    assert snapshot(Inference(net(), X), tmp_path, "a") == first
    assert Path(first.model.path).stat().st_mtime_ns == stamp
    assert read_snapshot(Path(first.folder)) == first
    assert [p.name for p in tmp_path.iterdir()] == [first.digest]


def other_weight():
    model = net()
    with torch.no_grad():
        model[0].bias[1] += 1e-6
    return Inference(model, X)


def other_buffer():
    model = net()
    model[1].running_mean[0] = 0.25
    return Inference(model, X)


def other_constant():
    model = net()
    model[1].eps = 1e-3
    return Inference(model, X)


@pytest.mark.parametrize(
    "change",
    [
        other_weight,
        other_buffer,
        other_constant,
        lambda: Inference(net(1), X),
        lambda: Inference(net(), X + 1),
        lambda: Inference(net(), X[:1]),
        lambda: Inference(net(), X, calibrate=[X]),
        lambda: Inference(net().append(nn.Identity()), X),
        lambda: Inference(net(), {"input": X}),
    ],
)
def test_any_change_moves_the_address(change, tmp_path):
    assert snapshot(change(), tmp_path, "m").digest != snapshot(Inference(net(), X), tmp_path, "m").digest


USER_FILE = """
    import torch
    from torch import nn
    import ironlaw as il
    import helper_beside

    SCALE = {scale}

    def twist(x):
        return torch.tanh(x) {sign} 1

    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = helper_beside.Layer()

        def forward(self, x):
            return twist(self.layer(x)) * SCALE

    def workload():
        x = torch.linspace(-1, 1, 8).reshape(2, 4)
        return il.Inference(Mine(), x, calibrate=[x])
"""
HELPER = """
    from torch import nn

    class Layer(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
"""


def write_user(folder, scale=2.0, sign="+"):
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(textwrap.dedent(USER_FILE.format(scale=scale, sign=sign)))
    (folder / "helper_beside.py").write_text(textwrap.dedent(HELPER))
    return f"{folder / 'mine.py'}:workload"


def digest_in_new_process(spec, store):
    code = (
        "import sys; from pathlib import Path; from ironlaw.workloads.load import load\n"
        "from ironlaw.workloads.snapshot import snapshot\n"
        "print(snapshot(load(sys.argv[1]), Path(sys.argv[2]), 'm').digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, spec, str(store)], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_address_is_the_same_in_other_processes_and_folders_and_follows_the_code(tmp_path):
    store = tmp_path / "store"
    first = digest_in_new_process(write_user(tmp_path / "a"), store)
    assert digest_in_new_process(write_user(tmp_path / "b"), store) == first
    assert digest_in_new_process(write_user(tmp_path / "c", scale=3.0), store) != first  # a constant that forward reads
    assert digest_in_new_process(write_user(tmp_path / "d", sign="-"), store) != first  # a helper that forward calls


def test_a_worker_needs_no_file_of_the_users(tmp_path):
    spec = write_user(tmp_path / "user")
    digest = digest_in_new_process(spec, tmp_path / "store")
    for file in (tmp_path / "user").glob("*.py"):
        file.unlink()
    code = (
        "import pickle, sys, torch\n"
        "model = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "assert not [m for m in sys.modules if m.startswith(('ironlaw', 'mine', 'helper_beside'))]\n"
        "print(float(model(torch.zeros(1, 4)).sum()))"
    )
    pkl = tmp_path / "store" / digest / "forms/eager/model.pkl"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(pkl)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    torch.manual_seed(0)
    assert float(done.stdout) == pytest.approx(
        float(((torch.tanh(nn.Linear(4, 3)(torch.zeros(1, 4))) + 1) * 2).sum()), rel=1e-5
    )


def test_loading_leaves_no_public_module_and_calls_once(tmp_path):
    (tmp_path / "calls.py").write_text(
        "import torch, ironlaw as il\nCOUNT = []\n"
        "def workload():\n    COUNT.append(1)\n    return il.Inference(torch.nn.Linear(2, 1), torch.ones(1, 2))\n"
        "ready = workload()\n"
    )
    inference = load(f"{tmp_path / 'calls.py'}:workload")
    (module,) = [m for name, m in sys.modules.items() if name.startswith("_ironlaw_calls")]
    assert len(module.COUNT) == 2  # once by the file itself, once by load
    assert "calls" not in sys.modules
    assert isinstance(load(f"{tmp_path / 'calls.py'}:ready"), Inference)
    assert inference.example.shape == (1, 2)


# ---------------------------------------------------------------- batches


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(2, 4).sum(1)


class Summed(nn.Module):
    def forward(self, x):
        return x, x.sum()


class Mixed(nn.Module):
    """Rows depend on each other: the batch must not be cut."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Shared(nn.Module):
    def forward(self, x, table):
        return x + table.sum()


@pytest.mark.parametrize(
    ("model", "inputs", "dynamic", "ins", "outs"),
    [
        (net(), X, True, [True], [True]),
        (Fixed(), X, False, [True], [True]),
        (Summed(), X, False, [True], [True, False]),
        (Mixed(), X, False, [True], [True]),
        (Shared(), (X, torch.ones(5)), True, [True, False], [True]),
        (Shared(), (X[:1], torch.ones(5)), True, [True, False], [True]),
    ],
)
def test_how_the_batch_axis_behaves(model, inputs, dynamic, ins, outs):
    axes = axes_of(open_model(Inference(model, inputs)))
    assert axes.dynamic is dynamic
    assert [s.batched for s in axes.inputs] == ins
    assert [s.batched for s in axes.outputs] == outs


def test_a_fixed_batch_is_split_and_padded(tmp_path):
    rows = torch.arange(20.0).reshape(5, 4)
    inference = Inference(Fixed(), X, calibrate=[rows])
    local = open_model(inference)
    assert torch.equal(predict_of(local, axes_of(local))(rows), rows.sum(1))
    taken = snapshot(inference, tmp_path, "fixed")
    assert [b[0].shape for b in calibration(taken)] == [(2, 4), (2, 4)]
    assert np.array_equal(calibration(taken)[1][0], rows[2:4].numpy())


def test_outputs_without_a_batch_axis_are_never_joined():
    local = open_model(Inference(Summed(), X))
    predict = predict_of(local, axes_of(local))
    assert float(predict(X)[1]) == pytest.approx(float(X.sum()))
    for rows in (X[:1], torch.cat([X, X])):
        with pytest.raises(UserError, match="no batch axis"):
            predict(rows)


def test_fidelity_runs_on_the_stored_batches_even_from_a_generator(tmp_path):
    inference = Inference(net(), X, calibrate=(X[:n] for n in (1, 2, 2)))
    taken = snapshot(inference, tmp_path, "m")
    judge = evaluator(inference, taken)
    reference = judge.reference(lambda x: net().eval()(torch.as_tensor(x)))
    found = judge.scores(lambda x: -net().eval()(torch.as_tensor(x)), reference)
    assert found.values.tolist() == pytest.approx([-1.0] * 5)
    assert np.array_equal(example(taken)[0], X.numpy())
    alone = replace(inference, calibrate=None)
    assert len(evaluator(alone, snapshot(alone, tmp_path, "m")).batches) == 1


# ---------------------------------------------------------------- files


def test_onnx_with_data(tmp_path):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(4, 3)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["out"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    x = rng.normal(size=(70, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x.astype(np.float64), y=(x @ weights).argmax(1))
    inference = load(str(path), data=tmp_path / "d.npz")
    taken = snapshot(inference, tmp_path / "store", "m")
    assert (taken.model.form, taken.batch, taken.dynamic, taken.parameters) == ("onnx", 1, True, 12)
    assert sum(len(b[0]) for b in calibration(taken)) == 70
    local = open_model(inference)
    found = metrics.score(inference.evaluate, predict_of(local, axes_of(local)))
    assert found.value == 1.0
    np.savez(tmp_path / "r.npz", x=x, y=x @ weights + 2)
    local = open_model(load(str(path), data=tmp_path / "r.npz"))
    found = metrics.score(load(str(path), data=tmp_path / "r.npz").evaluate, predict_of(local, axes_of(local)))
    assert found.value == pytest.approx(2.0, rel=1e-5)
    np.savez(tmp_path / "f.npz", x=x)
    assert load(str(path), data=tmp_path / "f.npz").evaluate.fidelity


def test_exported_program(tmp_path):
    model = net().eval()
    batch = torch.export.Dim("n")
    torch.export.save(torch.export.export(model, (X,), dynamic_shapes=({0: batch},)), tmp_path / "m.pt2")
    taken = snapshot(Inference(tmp_path / "m.pt2", X), tmp_path / "store", "m")
    assert (taken.model.form, taken.dynamic, taken.parameters) == ("exported", True, 21)
    assert torch.allclose(torch.export.load(taken.model.path).module()(X[:1]), model(X[:1]))
    again = snapshot(Inference(tmp_path / "m.pt2", X), tmp_path / "store", "m")
    assert again.digest == taken.digest


def test_a_crash_while_writing_leaves_nothing(tmp_path, monkeypatch):
    import ironlaw.workloads.snapshot as module

    real, calls = module._write_file, []

    def dies(path, data):
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(module, "_write_file", dies)
    with pytest.raises(KeyboardInterrupt):
        snapshot(Inference(net(), X), tmp_path, "m")
    assert list(tmp_path.iterdir()) == []


def test_hugging_face_outputs(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, intermediate_size=16)).eval()
    ids = torch.arange(16).reshape(2, 8)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    wanted = model(**inputs).logits

    def evaluate(predict):
        return (predict(**inputs).logits - wanted).abs().amax(1)

    taken = snapshot(Inference(model, inputs, evaluate=evaluate, higher_is_better=False), tmp_path, "bert")
    assert [s.name for s in taken.outputs] == ["logits"]
    again = rebuild(Inference(model, inputs)).outputs_from_arrays([wanted.detach().numpy()], ids)
    assert type(again).__name__ == "SequenceClassifierOutput"
    assert torch.equal(again.logits, wanted)
