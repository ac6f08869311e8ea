"""The ledger of an ONNX graph at fixed input shapes: what a runtime must do, before it fuses anything.

Why from the graph and not from a runtime's profile: the same numbers then hold for every runtime that takes
the file. What depends on constants alone is folded, as runtimes do at load. In a QDQ graph a convolution or
product fed by ``DequantizeLinear`` is int8, reads the quantised tensor, and the Q and DQ nodes around it move
nothing; a Q or DQ that stands alone is an elementwise operator that does cost. A product with packed weights reads
them as they are stored, with their scales and zero points.

Control flow is listed as uncounted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.measure import kinds
from ironlaw.measure.ledger_cache import CacheModel
from ironlaw.measure.ledger_onnx_flops import Call, flops, weight_position
from ironlaw.measure.ledger_onnx_graph import Graph
from ironlaw.measure.profile_torch import shapes_text
from ironlaw.records import Ledger, Op

if TYPE_CHECKING:
    import numpy as np

_QUANTISED_IN = frozenset({"conv", "depthwise", "matmul"})
_INT8_OPS = ("QLinear", "ConvInteger", "MatMulInteger", "QGemm", "DynamicQuantize", "QAttention")
_ABSORBED = frozenset({"Relu", "Clip"})
"""Activations that a quantised output range replaces."""


def _rounds_rows(node: Any) -> bool:
    """Whether a product with packed weights may round its rows to int8, as its ``accuracy_level`` says."""
    return node.op_type == "MatMulNBits" and any(a.name == "accuracy_level" and a.i >= 4 for a in node.attribute)


@dataclass(slots=True)
class _Sum:
    kind: str
    calls: int = 0
    flops: float | None = 0.0
    low: float = 0.0
    high: float = 0.0
    weights: float = 0.0


def count_onnx(
    path: str | Path, feeds: Mapping[str, np.ndarray], *, batch: int, cache_bytes: int | None = None
) -> Ledger:
    """What one run of the graph on arrays of the shapes of ``feeds`` needs.

    Raises ``UserError`` when the file is no ONNX model or its fixed shapes contradict ``feeds``.
    """
    graph = Graph(Path(path), feeds)
    walk = _Walk(graph, cache_bytes)
    for node in graph.nodes:
        walk.add(node)
    return Ledger(ops=walk.ops(), batch=batch, source="onnx")


@dataclass(slots=True)
class _Walk:
    """Adds nodes up in order, with the cache model over named values."""

    graph: Graph
    cache_bytes: int | None
    sums: dict[tuple[str, str, str], _Sum] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    alias: dict[str, str] = field(default_factory=dict)
    uses: dict[str, int] = field(init=False)
    cache: CacheModel = field(init=False)

    def __post_init__(self) -> None:
        self.cache = CacheModel(self.cache_bytes)
        self.uses = {name: len(users) for name, users in self.graph.consumers.items()}

    def add(self, node: Any) -> None:
        call = self._call(node)
        low, high, weights = 0.0, 0.0, 0.0
        kind = call.kind
        if kind == "view":
            self._pass_through(node)
        else:
            low, high, weights = self._traffic(node, kind)
        self._release(node)
        dtype = "int8" if self._is_int8(node) or _rounds_rows(node) else self._dtype(node)
        shape = shapes_text(one for one in call.inputs if one)
        total = self.sums.setdefault((node.op_type, shape, dtype), _Sum(kind))
        counted = flops(call)
        total.calls += 1
        total.flops = None if counted is None or total.flops is None else total.flops + counted
        total.low, total.high, total.weights = total.low + low, total.high + high, total.weights + weights

    def ops(self) -> tuple[Op, ...]:
        return tuple(
            Op(
                name=name,
                kind=total.kind,
                calls=total.calls,
                flops=total.flops,
                bytes_low=total.low,
                bytes_high=total.high,
                dtype=dtype,
                shape=shape,
                weights_bytes=total.weights,
            )
            for (name, shape, dtype), total in self.sums.items()
        )

    def _call(self, node: Any) -> Call:
        import onnx

        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if not a.HasField("g")}
        return Call(
            op=node.op_type,
            domain=node.domain,
            kind=self._kind(node, attributes),
            inputs=tuple(self.graph.value(name).shape if name else None for name in node.input),
            outputs=tuple(self.graph.value(name).shape if name else None for name in node.output),
            attributes=attributes,
        )

    def _kind(self, node: Any, attributes: Mapping[str, Any]) -> str:
        if node.op_type == "DequantizeLinear" and self._melts_into_users(node):
            return "view"
        if node.op_type == "QuantizeLinear" and self._made_by_int8(node.input[0]):
            return "view"
        if node.op_type in _ABSORBED and self._is_absorbed(node):
            return "view"
        kind = kinds.onnx_kind(node.op_type)
        if kind != "conv":
            return kind
        weight = self.graph.value(node.input[weight_position(node.op_type)]).shape
        groups = int(attributes.get("group", 1))
        per_group = (weight[0] // groups if node.op_type == "ConvTranspose" else weight[1]) if weight else 0
        return kinds.conv_kind(groups, per_group)

    # -------------------------------------------------------- quantised graphs

    def _is_int8(self, node: Any) -> bool:
        if node.op_type.startswith(_INT8_OPS):
            return True
        kind = kinds.onnx_kind(node.op_type)
        if kind in _QUANTISED_IN:
            return self._from_dq(node.input[0]) and self._from_dq(node.input[1])
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") or kind == "view":
            return False
        data = [name for name in node.input if name and name not in self.graph.constants]
        return bool(data) and all(self._from_dq(name) for name in data) and self._all_quantised(node)

    def _all_quantised(self, node: Any) -> bool:
        users = [user for name in node.output for user in self.graph.consumers.get(name, [])]
        return bool(users) and all(user.op_type == "QuantizeLinear" for user in users)

    def _from_dq(self, name: str) -> bool:
        maker = self.graph.producer.get(name)
        return maker is not None and maker.op_type == "DequantizeLinear"

    def _melts_into_users(self, node: Any) -> bool:
        users = self.graph.consumers.get(node.output[0], [])
        return bool(users) and all(self._is_int8(user) for user in users)

    def _is_absorbed(self, node: Any) -> bool:
        maker = self.graph.producer.get(node.input[0])
        return maker is not None and self._is_int8(maker) and self._all_quantised(node)

    def _made_by_int8(self, name: str) -> bool:
        maker = self.graph.producer.get(name)
        if maker is not None and maker.op_type in _ABSORBED and self._is_absorbed(maker):
            return True
        return maker is not None and self._is_int8(maker)

    # -------------------------------------------------------- traffic

    def _traffic(self, node: Any, kind: str) -> tuple[float, float, float]:
        low = high = weights = 0.0
        int8 = self._is_int8(node)
        for position, name in enumerate(node.input):
            if not name:
                continue
            source = self._source(name, int8)
            size = self.graph.value(self._behind_dq(name) if int8 else name).bytes
            if kind == "embedding" and position == 0:
                size = min(size, self.graph.value(node.output[0]).bytes)
            low += self._read(source, size)
            high += size
            weights += size if source in self.graph.constants else 0.0
        shrink = 0.25 if int8 and not node.op_type.startswith(_INT8_OPS) and self._stays_int8(node) else 1.0
        for name in node.output:
            if name:
                size = self.graph.value(name).bytes * shrink
                self.seen.add(name)
                low += self.cache.write(name, size)
                high += size
        return low, high, weights

    def _stays_int8(self, node: Any) -> bool:
        users = [user for name in node.output for user in self.graph.consumers.get(name, [])]
        quantised = [u.op_type == "QuantizeLinear" or (u.op_type in _ABSORBED and self._is_absorbed(u)) for u in users]
        return bool(users) and all(quantised)

    def _source(self, name: str, int8: bool) -> str:
        """The tensor that is really read: behind views, and behind DequantizeLinear for an int8 operator."""
        if int8:
            name = self._behind_dq(name)
        while name in self.alias:
            name = self.alias[name]
        return name

    def _behind_dq(self, name: str) -> str:
        return str(self.graph.producer[name].input[0]) if self._from_dq(name) else name

    def _read(self, name: str, size: float) -> float:
        first = 0.0 if name in self.seen else size
        self.seen.add(name)
        return self.cache.read(name, size, first=first)

    def _pass_through(self, node: Any) -> None:
        source = self._source(node.input[0], False) if node.input else ""
        for name in node.output:
            if name and source:
                self.alias[name] = source
                self.uses[source] = self.uses.get(source, 0) + self.uses.get(name, 0)

    def _release(self, node: Any) -> None:
        """Forget what nobody reads any more."""
        for name in node.input:
            for held in {name, self._source(name, True)} if name else ():
                self.uses[held] = self.uses.get(held, 1) - 1
                if self.uses[held] <= 0 and held not in self.graph.outputs | self.graph.constants:
                    self.cache.forget(held)

    def _dtype(self, node: Any) -> str:
        found = [self.graph.value(name).dtype for name in (*node.input, *node.output) if name]
        return next((one for one in found if "float" in one), found[0] if found else "float32")
