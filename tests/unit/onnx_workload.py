"""A small ONNX workload for the tests of runtimes and int8 levers: snapshot, candidate, data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ironlaw.records import (
    Candidate,
    Conditions,
    Diagnosis,
    Environment,
    Execution,
    Goal,
    Identity,
    KernelRate,
    Kind,
    Ledger,
    Machine,
    ModelFile,
    Op,
    Snapshot,
    TensorSpec,
    Term,
    TermTime,
    exactly,
)

SIDE, CHANNELS, CLASSES = 8, 3, 10


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """He-scaled weights whose channels differ in range by powers of two, so that granularity matters."""
    rng = np.random.default_rng(seed)
    spread = 2.0 ** rng.integers(-3, 4, 16)
    return {
        "w1": (rng.standard_normal((16, CHANNELS, 3, 3)) * spread[:, None, None, None] / 5).astype(np.float32),
        "b1": rng.standard_normal(16).astype(np.float32),
        "w2": (rng.standard_normal((16, 1, 3, 3)) / 3).astype(np.float32),
        "w3": (rng.standard_normal((16 * 16, CLASSES)) / 16).astype(np.float32),
        "b3": rng.standard_normal(CLASSES).astype(np.float32),
    }


def cnn(batch: int | str = "batch", values: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """Conv-Relu, depthwise Conv-Relu, MaxPool, Gemm."""
    values = values or weights()
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1], group=16),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("MaxPool", ["r2"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], name="flat", axis=1),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="fc"),
    ]
    return model(nodes, values, {"x": [batch, CHANNELS, SIDE, SIDE]}, {"y": [batch, CLASSES]})


def mlp(batch: int | str = "batch") -> onnx.ModelProto:
    """Two MatMuls with a Relu between."""
    rng = np.random.default_rng(3)
    values = {
        "a": (rng.standard_normal((64, 128)) / 8).astype(np.float32),
        "b": (rng.standard_normal((128, CLASSES)) / 11).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="mm1"),
        helper.make_node("Relu", ["h"], ["hr"], name="relu"),
        helper.make_node("MatMul", ["hr", "b"], ["y"], name="mm2"),
    ]
    return model(nodes, values, {"x": [batch, 64]}, {"y": [batch, CLASSES]})


def embedder(batch: int | str = "batch") -> onnx.ModelProto:
    """Floats rounded to rows of a table, looked up, then one product with weights."""
    rng = np.random.default_rng(4)
    values = {
        "table": rng.standard_normal((1000, 32)).astype(np.float32),
        "w": (rng.standard_normal((32, CLASSES)) / 6).astype(np.float32),
    }
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Cast", ["a"], ["i"], name="cast", to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "i"], ["e"], name="embed", axis=0),
        helper.make_node("MatMul", ["e", "w"], ["y"], name="head"),
    ]
    return model(nodes, values, {"x": [batch, 8]}, {"y": [batch, 8, CLASSES]})


def model(
    nodes: list[onnx.NodeProto], values: dict[str, np.ndarray], inputs: dict[str, list], outputs: dict[str, list]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(v, n) for n, v in values.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    return made


def candidate(
    folder: Path,
    proto: onnx.ModelProto,
    *,
    execution: Execution | None = None,
    calibration: Sequence[np.ndarray] | None = None,
    example_rows: int = 4,
) -> Candidate:
    """A candidate on that model; its store holds an example and the calibration batches given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "work").mkdir(exist_ok=True)
    path = folder / "source.onnx"
    onnx.save(proto, path)
    specs = [_spec(v, example_rows) for v in proto.graph.input]
    rng = np.random.default_rng(1)
    example = {s.name: rng.standard_normal(s.shape).astype(np.float32) for s in specs}
    np.savez(folder / "example.npz", **example)
    batches = list(calibration) if calibration is not None else data(specs[0].shape[1:], batches=4, rows=example_rows)
    np.savez(folder / "calibration.npz", **{f"{i}.{specs[0].name}": b for i, b in enumerate(batches)})
    snapshot = Snapshot(
        digest="d" * 64,
        kind=Kind.INFERENCE,
        name="test",
        folder=str(folder),
        model=ModelFile(form="onnx", path=str(path), digest="d" * 64),
        inputs=tuple(specs),
        outputs=tuple(_spec(v, example_rows) for v in proto.graph.output),
        batch=example_rows,
        dynamic=True,
        parameters=1,
        weights_bytes=4,
        calibration_batches=len(batches),
    )
    return Candidate(
        snapshot=snapshot,
        model=snapshot.model,
        execution=execution or Execution(target="onnxruntime", batch=example_rows, threads=1),
        goal=Goal(),
        workspace=str(folder / "work"),
    )


def data(shape: tuple[int, ...], *, batches: int, rows: int, seed: int = 7) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, *shape)).astype(np.float32) for _ in range(batches)]


def sqnr_db(reference: np.ndarray, other: np.ndarray) -> float:
    """Signal to quantisation noise: 10 log10(sum r^2 / sum (r - o)^2)."""
    noise = float(((reference - other) ** 2).sum())
    return float("inf") if noise == 0 else 10 * float(np.log10(float((reference**2).sum()) / noise))


def _spec(value: onnx.ValueInfoProto, rows: int) -> TensorSpec:
    dims = [d.dim_value or rows for d in value.type.tensor_type.shape.dim]
    return TensorSpec(name=value.name, shape=tuple(dims), dtype="float32")


# ---------------------------------------------------------------- a made-up machine and diagnosis


def machine(rates: dict[tuple[str, str, str], float], *, isa: tuple[str, ...] = ("avx512_vnni",)) -> Machine:
    """Kernel rates in units a second by (target, kind, dtype), known exactly, without fixed costs."""
    identity = Identity(
        cpu="test", architecture="x86_64", isa=isa, cores=2, memory_bytes=1 << 33, os="test", python="3.11"
    )
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None)
    kernels = tuple(
        KernelRate(
            target=target,
            kind=kind,
            dtype=dtype,
            threads=1,
            unit="FLOP/s" if kind in ("conv", "depthwise", "matmul") else "B/s",
            rate=exactly(value),
            call_s=0.0,
            shapes=9,
        )
        for (target, kind, dtype), value in rates.items()
    )
    return Machine(environment=Environment(identity=identity, conditions=conditions), ceilings=(), kernels=kernels)


def op(kind: str, flops: float, *, name: str = "", weights_bytes: float = 4e4, dtype: str = "float32") -> Op:
    """One operator whose traffic is small."""
    return Op(
        name=name or kind,
        kind=kind,
        calls=1,
        flops=flops,
        bytes_low=weights_bytes,
        bytes_high=1e5,
        dtype=dtype,
        weights_bytes=weights_bytes,
        time_s=1e-3,
    )


def diagnosis(ops: Sequence[Op], total_s: float, *, target: str = "onnxruntime") -> Diagnosis:
    """A run of those operators that is all compute."""
    return Diagnosis(
        total_s=total_s,
        terms=(TermTime(term=Term.COMPUTE, seconds=exactly(total_s), evidence="made up"),),
        dominant=Term.COMPUTE,
        why="made up",
        ledger=Ledger(ops=tuple(ops), batch=4, source="made up"),
        bounds=(),
        target=target,
        threads=1,
    )
