"""Which layers int8 hurts most: the noise at the model's outputs when only these layers are quantised.

Noise is relative to the signal, 1 / SQNR, on at most 64 calibration rows. Each layer is measured alone as long as
there are at most ``LIMIT`` of them. A deeper net begins with runs of neighbours and splits the noisiest run in two
until the measurements are spent: noise of layers adds up to first order (Zhou et al. 2018, arXiv:1712.01048), so a
run bounds every layer within it, and a quiet run need not be opened. Layers of an unopened run share its noise evenly
and their record says with how many. It refuses data or outputs with NaN or Inf, which no ranking could stand on, and
says nothing of interactions: layers are judged one at a time, never in all subsets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.levers import _calibration_data, _onnx_int8
from ironlaw.records import Candidate, TensorSpec, UserError

if TYPE_CHECKING:
    import numpy as np

LIMIT = 60
ROWS = 64
USELESS = 1e12
"""The noise of outputs that are not finite, or that should be zero: above that of anything that still works."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A node with stored weights."""

    name: str
    op: str
    weight_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """``error`` is noise over signal at the outputs; ``rank`` 1 is the most harmful; ``measured_with`` 1: alone."""

    name: str
    op: str
    weight_bytes: int
    error: float
    rank: int
    measured_with: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours that were quantised together, from position ``start`` on, and the noise that they made."""

    start: int
    layers: tuple[Layer, ...]
    error: float


def layers_of(path: Path, names: Iterable[str]) -> tuple[Layer, ...]:
    """Those nodes in the order of the graph."""
    import onnx

    graph, wanted = onnx.load(str(path), load_external_data=False).graph, set(names)
    sizes = {w.name: _bytes(w) for w in graph.initializer}
    return tuple(
        Layer(name=n.name, op=n.op_type, weight_bytes=sizes.get(n.input[1], 0)) for n in graph.node if n.name in wanted
    )


def rank(layers: Sequence[Layer], error: Callable[[list[str]], float], limit: int = LIMIT) -> tuple[Sensitivity, ...]:
    """Layers, the most harmful first; ``error`` is called at most ``limit`` times (at least 2) with names."""

    def measured(start: int, end: int) -> _Run:
        part = tuple(layers[start:end])
        return _Run(start, part, error([layer.name for layer in part]))

    size = 1 if len(layers) <= limit else math.ceil(len(layers) / max(1, limit // 2))
    runs = [measured(i, min(i + size, len(layers))) for i in range(0, len(layers), size)]
    spent = len(runs)
    while spent + 2 <= limit and (closed := [run for run in runs if len(run.layers) > 1]):
        worst = max(closed, key=lambda run: (run.error, -run.start))
        middle, end = worst.start + len(worst.layers) // 2, worst.start + len(worst.layers)
        runs.remove(worst)
        runs += [measured(worst.start, middle), measured(middle, end)]
        spent += 2
    runs.sort(key=lambda run: (-run.error / len(run.layers), run.start))
    found = [(layer, run) for run in runs for layer in run.layers]
    return tuple(
        Sensitivity(**asdict(layer), error=run.error / len(run.layers), rank=place, measured_with=len(run.layers))
        for place, (layer, run) in enumerate(found, start=1)
    )


class Judge:
    """Compares models with the float one on calibration rows."""

    def __init__(self, ready: Path, candidate: Candidate, fixed_batch: int | None) -> None:
        feeds, _ = _calibration_data.feeds(candidate, fixed_batch, ROWS)
        self._feeds = feeds if fixed_batch else _cut(feeds, candidate.snapshot.inputs)
        self._threads = candidate.execution.threads
        self._reference = self._outputs(ready)
        if not all(_finite(outputs) for outputs in self._reference):
            raise UserError(
                "int8_mixed", "the float model gives NaN or Inf on calibration data", "Give data that it can take."
            )

    def error(self, path: Path) -> float:
        """Noise over signal, the mean over the model's outputs, rounded to six digits so that ties stay ties."""
        import numpy as np

        noise = np.zeros(len(self._reference[0]))
        signal = np.zeros_like(noise)
        for wanted, got in zip(self._reference, self._outputs(path), strict=True):
            if not _finite(got):
                return USELESS
            noise += [np.square(w - g, dtype=np.float64).sum() for w, g in zip(wanted, got, strict=True)]
            signal += [np.square(w, dtype=np.float64).sum() for w in wanted]
        shares = [n / s if s else USELESS * (n > 0) for n, s in zip(noise, signal, strict=True)]
        return float(f"{min(USELESS, float(np.mean(shares))):.6g}")

    def _outputs(self, path: Path) -> list[list[np.ndarray]]:
        import numpy as np
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = self._threads
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return [[np.asarray(o, np.float32) for o in session.run(None, feed)] for feed in self._feeds]


class OnlyThese:
    """Float models in which chosen nodes alone are rounded: weight and input with the scales of a QDQ model.

    The scales come from the model that is quantised whole, so that calibration runs once and not once a layer.
    Biases stay in float: at 32 bits their rounding is not what hurts.
    """

    def __init__(self, ready: Path, whole: Path) -> None:
        import onnx

        self._large = _onnx_int8.is_large(ready)
        self._float = _recent(onnx.load(str(ready)))
        graph = onnx.load(str(whole)).graph
        self._stored = {w.name: w for w in graph.initializer}
        self._maker = {name: node for node in graph.node for name in node.output}
        self._nodes = {node.name: node for node in graph.node}

    def write(self, names: Iterable[str], out: Path) -> Path:
        """The model with those nodes rounded, at ``out``."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._float)
        wanted, nodes = set(names), list(model.graph.node)
        del model.graph.node[:]
        for node in nodes:
            if node.name in wanted:
                self._round(model.graph, node, 0)
                self._round(model.graph, node, 1)
            model.graph.node.append(node)
        onnx.save(model, str(out), save_as_external_data=self._large, location=f"{out.name}.data")
        return out

    def _round(self, graph: Any, node: Any, operand: int) -> None:
        """Puts the whole model's rounding of that operand before ``node``."""
        last = self._maker[self._nodes[node.name].input[operand]]
        first = self._maker.get(last.input[0])
        value = node.input[operand]
        for step in (last,) if first is None else (first, last):
            made = graph.node.add()
            made.CopyFrom(step)
            made.name = f"{node.name}/{operand}/{step.op_type}"
            made.output[0] = made.name
            made.input[0] = self._copied(graph, step.input[0], made.name) if first is None else value
            for i in range(1, len(step.input)):
                made.input[i] = self._copied(graph, step.input[i], made.name)
            value = made.name
        node.input[operand] = value

    def _copied(self, graph: Any, name: str, owner: str) -> str:
        """A stored tensor of the whole model under a name of its own."""
        stored = graph.initializer.add()
        stored.CopyFrom(self._stored[name])
        stored.name = f"{owner}/{name}"
        return str(stored.name)


def _recent(model: Any) -> Any:
    """The model at opset 13 at least, from which on a scale may differ by channel."""
    from onnx import version_converter

    version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    return version_converter.convert_version(model, 13) if version < 13 else model


def save(found: Sequence[Sensitivity], path: Path) -> None:
    """The ranking as JSON, one object a layer, the most harmful first."""
    path.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", encoding="utf-8")


def decibel(error: float) -> float | None:
    """SQNR of that noise, to a tenth; None where there was no noise at all."""
    return None if error <= 0 else round(-10 * math.log10(error), 1)


def _cut(feeds: list[dict[str, np.ndarray]], inputs: Sequence[TensorSpec]) -> list[dict[str, np.ndarray]]:
    """Batches that hold at most ``ROWS`` rows together."""
    batched, left, kept = {spec.name for spec in inputs if spec.batched}, ROWS, []
    for feed in feeds:
        if left <= 0:
            break
        kept.append({name: a[:left] if name in batched else a for name, a in feed.items()})
        left -= next((len(feed[name]) for name in batched), 1)
    return kept


def _finite(outputs: Sequence[np.ndarray]) -> bool:
    import numpy as np

    return all(bool(np.isfinite(o).all()) for o in outputs)


def _bytes(weight: Any) -> int:
    import onnx

    width = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize
    return int(math.prod(weight.dims) * width)
