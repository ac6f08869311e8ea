"""Clean-up of an exported inference graph: fold, drop, precompute; the numbers stay.

Three passes on the graph that ``torch.export`` gives: a batch norm in evaluation mode is folded into
the convolution or linear layer before it (Jacob et al. 2018, eq. 14: w' = w g/sqrt(v+e)); dropout,
identity copies and detaches go; operators whose inputs are all constants are computed once. What is
folded is only what has one reader, so that nothing is computed twice. The result is exported again and
compared with the original on the example: a difference beyond rounding is an error, never a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ironlaw.forms import exported
from ironlaw.records import Snapshot

TOLERANCE = 1e-4
"""Largest difference, relative to the largest output, that folding in float32 may cause."""

_GROW_BYTES = 1 << 20
"""A precomputed constant may be this much larger than what it is computed from."""

_CONVOLUTIONS = ("aten.conv1d", "aten.conv2d", "aten.conv3d")
_TRANSPOSED = ("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
_IDENTITIES = (
    "aten.dropout",
    "aten.alpha_dropout",
    "aten.feature_dropout",
    "aten.alias",
    "aten.detach",
    "aten.lift_fresh",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaned:
    """A cleaned program and how many operators were folded, dropped and precomputed."""

    program: Any
    folded: int
    dropped: int
    precomputed: int
    difference: float

    @property
    def changed(self) -> bool:
        return bool(self.folded or self.dropped or self.precomputed)


def clean(program: Any, snapshot: Snapshot) -> Cleaned:
    """A new program without what inference does not need.

    Raises:
        ArithmeticError: the cleaned program does not compute the same.
    """
    import torch

    rows = max(2, snapshot.batch) if exported.is_dynamic(program) else snapshot.batch
    args = exported.tensors(snapshot, rows)
    graph_module = program.module(check_guards=False)
    with torch.no_grad():
        before = _flat(graph_module(*args))
        dropped = _each(graph_module, _drop_identity)
        folded = _each(graph_module, _fold_norm)
        precomputed = _each(graph_module, _precompute)
        graph_module.graph.eliminate_dead_code()
        graph_module.delete_all_unused_submodules()
        graph_module.recompile()
        _forget_unused(graph_module)
        again = _export_again(graph_module, program, snapshot, args)
        difference = _difference(before, _flat(again.module(check_guards=False)(*args)))
    if not difference <= TOLERANCE:
        raise ArithmeticError(f"the cleaned graph differs by {difference:.2g} of the largest output")
    return Cleaned(program=again, folded=folded, dropped=dropped, precomputed=precomputed, difference=difference)


def _export_again(graph_module: Any, program: Any, snapshot: Snapshot, args: tuple[Any, ...]) -> Any:
    import torch

    if not exported.is_dynamic(program):
        return exported.plain(torch.export.export(graph_module, args))
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple({0: batch} if spec.batched else None for spec in snapshot.inputs)
    return exported.plain(torch.export.export(graph_module, args, dynamic_shapes=shapes))


def _each(graph_module: Any, rewrite: Callable[[Any, Any], bool]) -> int:
    """Apply a rewrite to every node once, in order; how often it did something."""
    done = sum(rewrite(graph_module, node) for node in list(graph_module.graph.nodes) if node.op == "call_function")
    graph_module.recompile()
    return done


def _name(node: Any) -> str:
    """The operator's name without its overload: ``aten.conv2d``."""
    return str(node.target).rsplit(".", 1)[0] if node.op == "call_function" else ""


def _drop_identity(graph_module: Any, node: Any) -> bool:
    if _name(node) not in _IDENTITIES or (_name(node).endswith("dropout") and node.args[2]):
        return False
    node.replace_all_uses_with(node.args[0])
    graph_module.graph.erase_node(node)
    return True


def _fold_norm(graph_module: Any, node: Any) -> bool:
    """Fold one ``batch_norm`` into its producer where that has no other reader."""
    if _name(node) != "aten.batch_norm" or node.args[5]:
        return False
    layer = node.args[0]
    kind = _name(layer) if hasattr(layer, "op") else ""
    if len(layer.users) != 1 or not (kind in _CONVOLUTIONS or kind in _TRANSPOSED or kind == "aten.linear"):
        return False
    if not _foldable(graph_module, layer, node, kind):
        return False
    weight, bias = _fused(graph_module, layer, node, kind)
    stem = layer.name
    with graph_module.graph.inserting_before(layer):
        arguments = list(layer.args) + [None] * max(0, 3 - len(layer.args))
        arguments[1] = _constant(graph_module, f"{stem}_folded_weight", weight)
        arguments[2] = _constant(graph_module, f"{stem}_folded_bias", bias)
    layer.args = tuple(arguments)
    node.replace_all_uses_with(layer)
    graph_module.graph.erase_node(node)
    return True


def _foldable(graph_module: Any, layer: Any, norm: Any, kind: str) -> bool:
    """Weights known, channels on the axis that the norm scales, and no groups where a transposed layout mixes them."""
    statistics = [*layer.args[1:3], *norm.args[1:5]]
    if any(argument is not None and _value(graph_module, argument) is None for argument in statistics):
        return False
    if kind == "aten.linear":
        rank = getattr(layer.meta.get("val"), "ndim", None)
        return rank == 2
    groups = layer.args[6] if kind in _TRANSPOSED and len(layer.args) > 6 else 1
    return bool(groups == 1)


def _fused(graph_module: Any, layer: Any, norm: Any, kind: str) -> tuple[Any, Any]:
    from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

    weight, bias = (_value(graph_module, layer.args[i]) if len(layer.args) > i else None for i in (1, 2))
    gain, shift, mean, variance = (_value(graph_module, a) for a in norm.args[1:5])
    epsilon = norm.args[7]
    if kind == "aten.linear":
        ones, zeros = _ones_zeros(mean)
        bias = zeros if bias is None else bias
        fused: tuple[Any, Any] = fuse_linear_bn_weights(
            weight, bias, mean, variance, epsilon, ones if gain is None else gain, zeros if shift is None else shift
        )
        return fused
    transpose = kind in _TRANSPOSED
    fused = fuse_conv_bn_weights(weight, bias, mean, variance, epsilon, gain, shift, transpose=transpose)
    return fused[0], fused[1]


def _ones_zeros(like: Any) -> tuple[Any, Any]:
    import torch

    return torch.ones_like(like), torch.zeros_like(like)


def _precompute(graph_module: Any, node: Any) -> bool:
    """Replace an operator of constants by its value, unless that is random or much larger than its inputs."""
    import torch

    inputs = node.all_input_nodes
    known = [_value(graph_module, n) for n in inputs]
    if not inputs or any(value is None for value in known) or not _pure(node) or node.target.is_view:
        return False
    result = _computed(graph_module, node)
    if not isinstance(result, torch.Tensor):
        return False
    if _size(result) > sum(_size(v) for v in known) + _GROW_BYTES:
        return False
    with graph_module.graph.inserting_before(node):
        constant = _constant(graph_module, f"{node.name}_value", result.detach().clone())
    node.replace_all_uses_with(constant)
    graph_module.graph.erase_node(node)
    return True


def _pure(node: Any) -> bool:
    """Whether an operator gives the same for the same inputs, and changes nothing."""
    import torch

    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def _computed(graph_module: Any, node: Any) -> Any:
    import torch

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: _value(graph_module, n))
    return node.target(*args, **kwargs)


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _constant(graph_module: Any, name: str, value: Any) -> Any:
    """A node that reads a new parameter (floats) or buffer."""
    import torch

    while hasattr(graph_module, name):
        name += "_"
    value = value.detach()
    if value.is_floating_point():
        graph_module.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
    else:
        graph_module.register_buffer(name, value)
    node = graph_module.graph.get_attr(name)
    node.meta["val"] = value
    return node


def _value(graph_module: Any, node: Any) -> Any:
    """The tensor that a node reads, also through views of it; None where it depends on an input."""
    import torch

    if getattr(node, "op", None) == "call_function" and _pure(node) and node.target.is_view:
        known = [_value(graph_module, n) for n in node.all_input_nodes]
        return None if not known or any(v is None for v in known) else _computed(graph_module, node)
    if getattr(node, "op", None) != "get_attr":
        return None
    found = graph_module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found if isinstance(found, torch.Tensor) else None


def _forget_unused(graph_module: Any) -> None:
    """Delete parameters and buffers that no node reads, so that the new program does not carry them."""
    read = {str(node.target) for node in graph_module.graph.nodes if node.op == "get_attr"}
    names = [n for n, _ in graph_module.named_parameters(remove_duplicate=False)]
    names += [n for n, _ in graph_module.named_buffers(remove_duplicate=False)]
    for name in names:
        if name not in read:
            parent, _, leaf = name.rpartition(".")
            delattr(graph_module.get_submodule(parent), leaf)


def _flat(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def _difference(before: list[Any], after: list[Any]) -> float:
    """Largest absolute difference over all outputs, relative to the largest value of its output."""
    if len(before) != len(after):
        return float("inf")
    worst = 0.0
    for old, new in zip(before, after, strict=True):
        if old.numel():
            scale = float(old.double().abs().max()) or 1.0
            worst = max(worst, float((old.double() - new.double()).abs().max()) / scale)
    return worst
