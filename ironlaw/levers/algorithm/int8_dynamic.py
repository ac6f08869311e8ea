"""Dynamic int8 for ONNX Runtime: weights int8 in the file, activations quantised as they come.

Why beside the static one: it needs no data and follows activations whose range changes from input to input, which
is what transformers do. ONNX Runtime has such kernels for products and LSTMs only; a convolution would fall to
``ConvInteger``, which is slower than float, so a network of convolutions is refused and told why.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ironlaw.contracts import No, Option, Yes
from ironlaw.levers import _int8, _onnx_int8, _onnx_quantisers
from ironlaw.records import (
    Axis,
    Candidate,
    Change,
    Diagnosis,
    Form,
    Kind,
    Machine,
    Objective,
    Prediction,
    Term,
    UserError,
)

_TARGET = "onnxruntime"
_KINDS = ("matmul", "recurrent")
_WORTH = 1.03


@dataclass(frozen=True, kw_only=True, slots=True)
class Int8DynamicSettings:
    """``weights`` s8 or u8; ``per_channel`` scales; ``reduce_range`` keeps weights to 7 bits (CPUs without VNNI).

    ``embeddings`` stores look-up tables as int8 too: smaller, not faster.
    """

    weights: str = "s8"
    per_channel: bool = True
    reduce_range: bool = False
    embeddings: bool = False

    def __post_init__(self) -> None:
        if self.weights not in _onnx_quantisers.WEIGHTS:
            raise UserError(
                f"int8_dynamic weights={self.weights!r}", "is not known", f"Use {', '.join(_onnx_quantisers.WEIGHTS)}."
            )


class Int8Dynamic:
    """The lever ``int8_dynamic``."""

    name: ClassVar[str] = "int8_dynamic"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.COMPUTE, Term.MEMORY, Term.LATENCY, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset(
        {"target", "compiler", "layout", "weights.dtype", "activations.dtype", "compute.dtype"}
    )
    consumes: ClassVar[frozenset[str]] = frozenset({Form.ONNX})
    produces: ClassVar[str] = Form.ONNX
    needs: ClassVar[frozenset[str]] = frozenset({"package:onnxruntime", "package:onnx"})
    target: ClassVar[str] = _TARGET
    cites: ClassVar[str] = "Jacob et al. 2018, arXiv:1712.05877; Zafrir et al. 2019, arXiv:1910.06188 (Q8BERT)"
    Settings: ClassVar[type] = Int8DynamicSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        products = _int8.quantisable(diagnosis, _KINDS)
        every = _int8.quantisable(diagnosis)
        if every and not products:
            return No(
                f"int8_dynamic refused: all {len(every)} operators with weights are convolutions, "
                "and onnxruntime has dynamic kernels for products and LSTMs only"
            )
        threads = candidate.execution.threads
        gain = _int8.gain_over_float(diagnosis, machine, products, target=_TARGET, threads=threads)
        if products and gain and gain.high < _WORTH and candidate.goal.objective not in _int8.NOT_BY_TIME:
            return No(
                f"int8_dynamic refused: int8 for {len(products)} products of {len(every)} operators with weights "
                f"gives at most {gain.high:.2f}x over onnxruntime in float"
            )
        prediction = self.predict(candidate, Int8DynamicSettings(), diagnosis, machine)
        return _int8.judge(
            candidate, diagnosis, machine, prediction, target=_TARGET, lever=self.name, kinds=frozenset(_KINDS)
        )

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        narrow = not _int8.has_dot_product(machine)
        small = candidate.goal.objective in (Objective.SIZE, Objective.MEMORY)
        tries = [
            Int8DynamicSettings(reduce_range=narrow, embeddings=small),
            Int8DynamicSettings(per_channel=False, reduce_range=narrow),
            Int8DynamicSettings(weights="u8", reduce_range=narrow),
        ]
        return [Option(settings=s, cost_s=4.0, alike="dynamic") for s in tries]

    def predict(
        self, candidate: Candidate, settings: Int8DynamicSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """Products at int8 rates, everything else at the runtime's float rates.

        The pass that finds each activation's range is not in the rates: it widens the low side by a tenth.
        """
        threads = candidate.execution.threads
        products = _int8.quantisable(diagnosis, _KINDS)
        moved = _int8.partly_moved(diagnosis, machine, products, target=_TARGET, threads=threads)
        moved = _int8.widened(moved, low=0.9)
        ops = _int8.with_embeddings(diagnosis, products, settings.embeddings)
        return _int8.for_goal(candidate, moved, ops, width=0.25)

    def apply(self, candidate: Candidate, settings: Int8DynamicSettings) -> tuple[Candidate, Change]:
        """``facts`` say how many of how many operators were quantised; none is a no-op."""
        out = Path(candidate.workspace) / "int8_dynamic.onnx"
        with tempfile.TemporaryDirectory(dir=candidate.workspace) as scratch:
            ready = _onnx_int8.preprocess(Path(candidate.model.path), Path(scratch))
            eligible = _onnx_int8.weighted(ready)
            _onnx_quantisers.dynamic(ready, out, **dataclasses.asdict(settings))
        return _onnx_int8.finish(self, candidate, settings, out, eligible=eligible, target=_TARGET, facts={})
