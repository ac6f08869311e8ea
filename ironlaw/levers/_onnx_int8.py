"""Steps that the ONNX int8 levers share: pre-processing, counting what was quantised, finishing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironlaw.contracts import Lever
from ironlaw.forms import files
from ironlaw.levers import _int8
from ironlaw.levers._quiet import quiet
from ironlaw.records import Candidate, Change, Form, Scalar

_WEIGHTED = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM"})
_DYNAMIC = frozenset({"MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul"})
LARGE_BYTES = 1_500_000_000


def is_large(path: Path) -> bool:
    """Whether the model needs its weights in a file of their own (protobuf ends at 2 GB)."""
    return sum(p.stat().st_size for p in path.parent.glob(f"{path.name}*")) > LARGE_BYTES


def preprocess(source: Path, scratch: Path) -> Path:
    """The model with batch norms folded and shapes inferred, which quantisation needs; nodes named."""
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready, named = scratch / "ready.onnx", scratch / "named.onnx"
    large = is_large(source)
    with quiet():
        quant_pre_process(source, ready, skip_symbolic_shape=True, save_as_external_data=large)
    model = onnx.load(str(ready))
    for position, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{position}"
    onnx.save(model, str(named), save_as_external_data=large, location="named.onnx.data")
    return named


def weighted(path: Path) -> frozenset[str]:
    """Names of convolutions, products and recurrent nodes whose second operand is a stored weight."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {w.name for w in graph.initializer}
    return frozenset(n.name for n in graph.node if n.op_type in _WEIGHTED and len(n.input) > 1 and n.input[1] in stored)


def tables(path: Path) -> frozenset[str]:
    """Names of look-ups in a stored matrix: embeddings."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {w.name for w in graph.initializer if len(w.dims) == 2 and w.data_type == onnx.TensorProto.FLOAT}
    return frozenset(n.name for n in graph.node if n.op_type == "Gather" and n.input[0] in stored)


def quantised(path: Path) -> frozenset[str]:
    """Of those, the ones whose weight is now int8 and whose input is quantised too.

    In QDQ both operands come from DequantizeLinear; in the dynamic format the operator itself is an
    integer one, named after the float node (a Gemm becomes
    ``<name>_MatMul_quant``).
    """
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    maker = {name: node for node in graph.node for name in node.output}
    stored = {w.name for w in graph.initializer}

    def dequantised(name: str) -> bool:
        node = maker.get(name)
        return node is not None and node.op_type == "DequantizeLinear"

    out = set()
    for node in graph.node:
        if node.op_type in _DYNAMIC:
            out.add(node.name.removesuffix("_quant").removesuffix("_MatMul"))
        elif node.op_type in _WEIGHTED and len(node.input) > 1 and all(map(dequantised, node.input[:2])):
            weight = maker[node.input[1]].input[0]
            if weight in stored:
                out.add(node.name)
    return frozenset(out)


def finish(
    lever: Lever,
    candidate: Candidate,
    settings: Any,
    path: Path,
    *,
    eligible: frozenset[str],
    target: str,
    facts: dict[str, Scalar],
) -> tuple[Candidate, Change]:
    """The candidate on that ONNX file and runtime, and its change."""
    return _int8.finished(
        lever,
        candidate,
        settings,
        model=files.model_file(Form.ONNX, path),
        target=target,
        eligible=eligible,
        done=quantised(path),
        facts={"model_bytes": path.stat().st_size, **facts},
    )
