"""Linear layers of an ONNX graph, brought to the one form that weight-only quantisers take: MatMul by a stored matrix.

Why: exporters write a linear layer as MatMul, as Gemm with a transposed or scaled weight, or as MatMul by a Transpose;
quantisers of weights know only the first. The transposes fold, a Gemm becomes MatMul and Add under its own name. It
refuses weights with NaN or Inf by the tensor's name, since a group's scale would carry them to every neighbour.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironlaw.levers import _onnx_int8
from ironlaw.records import UserError


def prepare(source: Path, scratch: Path) -> Path:
    """The model with constants folded, nodes named, and every Gemm by a stored matrix as MatMul and Add."""
    import onnx

    ready = _onnx_int8.preprocess(source, scratch)
    model = onnx.load(str(ready))
    stored = {w.name: w for w in model.graph.initializer}
    nodes: list[Any] = []
    for node in model.graph.node:
        nodes += _split(node, stored, model.graph) if _splits(node, stored) else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    _drop_unused(model.graph)
    out = scratch / "linear.onnx"
    onnx.save(model, str(out), save_as_external_data=_onnx_int8.is_large(ready), location="linear.onnx.data")
    return out


def layers(path: Path) -> dict[str, int]:
    """Name of each MatMul by a stored float matrix -> its inner dimension."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {w.name: w for w in graph.initializer if w.data_type == onnx.TensorProto.FLOAT and len(w.dims) >= 2}
    return {
        node.name: int(stored[node.input[1]].dims[-2])
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in stored and _is_matrix(stored[node.input[1]])
    }


def refuse_not_finite(path: Path, names: frozenset[str]) -> None:
    """Raises ``UserError`` that names the first weight of those layers that holds NaN or Inf."""
    import numpy as np
    import onnx

    model = onnx.load(str(path))
    wanted = {node.input[1] for node in model.graph.node if node.name in names}
    for tensor in model.graph.initializer:
        if tensor.name in wanted and not np.isfinite(onnx.numpy_helper.to_array(tensor)).all():
            raise UserError(f"weight {tensor.name!r}", "holds NaN or Inf", "Repair the model before it is quantised.")


def hide(graph: Any, names: frozenset[str]) -> dict[str, str]:
    """Put an Identity before the weights of those layers: GPTQ's quantiser ignores its own list of exceptions.

    What :func:`show` needs to take them away again: hidden name -> name of the weight.
    """
    import onnx

    hidden = {}
    for node in list(graph.node):
        if node.name in names:
            name = f"{node.name}_hidden"
            hidden[name] = node.input[1]
            graph.node.insert(0, onnx.helper.make_node("Identity", [node.input[1]], [name], name=name))
            node.input[1] = name
    return hidden


def show(graph: Any, hidden: dict[str, str]) -> None:
    """Undo :func:`hide`."""
    kept = [node for node in graph.node if node.output[0] not in hidden]
    for node in kept:
        for place, name in enumerate(node.input):
            node.input[place] = hidden.get(name, name)
    del graph.node[:]
    graph.node.extend(kept)


def _is_matrix(tensor: Any) -> bool:
    return all(size == 1 for size in tensor.dims[:-2])


def _splits(node: Any, stored: dict[str, Any]) -> bool:
    import onnx

    if node.op_type != "Gemm" or node.input[1] not in stored:
        return False
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    scaled_bias = given.get("beta", 1.0) != 1.0 and len(node.input) > 2 and node.input[2] not in stored
    return stored[node.input[1]].data_type == onnx.TensorProto.FLOAT and not given.get("transA", 0) and not scaled_bias


def _split(node: Any, stored: dict[str, Any], graph: Any) -> list[Any]:
    """The Gemm as MatMul under its name, and Add where it has a bias."""
    import onnx

    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    weight = onnx.numpy_helper.to_array(stored[node.input[1]])
    weight = (weight.T if given.get("transB", 0) else weight) * weight.dtype.type(given.get("alpha", 1.0))
    matrix = _store(graph, f"{node.name}_weight_KN", weight)
    biased = len(node.input) > 2 and node.input[2]
    product = f"{node.output[0]}_product" if biased else node.output[0]
    out = [onnx.helper.make_node("MatMul", [node.input[0], matrix], [product], name=node.name)]
    if biased:
        bias = node.input[2]
        if given.get("beta", 1.0) != 1.0:
            value = onnx.numpy_helper.to_array(stored[bias])
            bias = _store(graph, f"{node.name}_bias_scaled", value * value.dtype.type(given["beta"]))
        out.append(onnx.helper.make_node("Add", [product, bias], [node.output[0]], name=f"{node.name}_bias"))
    return out


def _store(graph: Any, name: str, value: Any) -> str:
    import numpy as np
    import onnx

    graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
    return name


def _drop_unused(graph: Any) -> None:
    used = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
    used |= {i for node in graph.node for a in node.attribute if a.HasField("g") for n in a.g.node for i in n.input}
    kept = [w for w in graph.initializer if w.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
