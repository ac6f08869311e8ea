"""Int8 for ONNX Runtime in which the layers that int8 hurts most stay in float.

Why beside the two that quantise everything: a few layers are often most of the damage, and sparing them costs little
time. Every layer with weights is quantised alone, the noise that this makes at the outputs is measured on calibration
rows (``ironlaw/levers/_sensitivity.py``), and the noisiest ``spare`` layers are left out. The ranking is kept as
``sensitivity.json`` beside the model. It refuses to rank by guesses (weights' ranges, position in the net): without
calibration batches it does not run, for the dynamic base neither. It looks at layers one by one: that two of them hurt
only together it cannot see. Networks with fewer than three layers are refused: half of them would be spared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.forms import batch as batches
from ironlaw.levers import _int8, _mixed_forecast, _onnx_int8, _onnx_quantisers, _sensitivity
from ironlaw.records import (
    Axis,
    Candidate,
    Change,
    Diagnosis,
    Form,
    Kind,
    Machine,
    Prediction,
    Scalar,
    Term,
    UserError,
)

_TARGET = "onnxruntime"
_KINDS = {"static": ("conv", "depthwise", "matmul", "recurrent"), "dynamic": ("matmul", "recurrent")}
_PRODUCTS = ("matmul", "attention", "recurrent")
_NAMED = 20
_SESSION_S = 0.15
"""To write a model with one layer quantised and to load it, beside what its weights take to move."""
_COPY_BYTES_S = 2e8


@dataclass(frozen=True, kw_only=True, slots=True)
class Int8MixedSettings:
    """``base`` static or dynamic; ``spare`` layers stay in float, the most harmful first.

    ``per_channel`` and ``reduce_range`` (weights of 7 bits, for CPUs without VNNI) are those of both bases.
    ``activation`` (u8 or s8), ``calibration`` (minmax, entropy or percentile), ``percentile``, ``scope`` (all, or
    weighted: only products and convolutions with stored weights) and ``rows`` are those of the static one.
    """

    base: str = "static"
    spare: int = 1
    activation: str = "u8"
    per_channel: bool = True
    calibration: str = "minmax"
    percentile: float = 99.99
    reduce_range: bool = False
    scope: str = "all"
    rows: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("base", self.base, _KINDS),
            ("activation", self.activation, _onnx_quantisers.ACTIVATIONS),
            ("calibration", self.calibration, _onnx_quantisers.METHODS),
            ("scope", self.scope, _onnx_quantisers.SCOPES),
        ):
            if value not in known:
                raise UserError(f"int8_mixed {name}={value!r}", "is not known", f"Use one of {', '.join(known)}.")
        if self.spare < 1:
            raise UserError(
                f"int8_mixed spare={self.spare}", "leaves no layer in float", "Use 1 or more, or an int8 lever."
            )


class Int8Mixed:
    """The lever ``int8_mixed``."""

    name: ClassVar[str] = "int8_mixed"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.ALGORITHM
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.COMPUTE, Term.MEMORY, Term.LATENCY, Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE})
    claims: ClassVar[frozenset[str]] = frozenset(
        {"target", "compiler", "layout", "weights.dtype", "activations.dtype", "compute.dtype"}
    )
    consumes: ClassVar[frozenset[str]] = frozenset({Form.ONNX})
    produces: ClassVar[str] = Form.ONNX
    needs: ClassVar[frozenset[str]] = frozenset({"package:onnxruntime", "package:onnx", "calibration"})
    target: ClassVar[str] = _TARGET
    cites: ClassVar[str] = (
        "Wu et al. 2020, arXiv:2004.09602 (partial quantisation by sensitivity); "
        "Dong et al. 2019, arXiv:1905.03696 (HAWQ)"
    )
    Settings: ClassVar[type] = Int8MixedSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        """Refuse where no base has three layers, or where even one spared layer leaves no gain."""
        answer: Yes | No = No("int8_mixed refused: no convolution or matrix product with weights in float")
        for base in reversed(_bases(diagnosis)):
            count = _mixed_forecast.layers(_int8.quantisable(diagnosis, _KINDS[base]))
            if 0 < count < 3:
                answer = No(f"int8_mixed refused: {count} layers that {base} int8 quantises, too few to choose from")
                continue
            prediction = self.predict(candidate, Int8MixedSettings(base=base), diagnosis, machine)
            answer = _int8.judge(
                candidate, diagnosis, machine, prediction, target=_TARGET, lever=self.name, kinds=_KINDS[base]
            )
            if answer:
                return answer
        return answer

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        """1, 2, 4, ... spared layers, under half of them; the base that suits the run first.

        The rungs of a base count as alike: a higher one is tried when a lower one lost too much quality.
        """
        vnni = _int8.has_dot_product(machine)
        scope = "weighted" if _int8.has_attention(diagnosis) else "all"
        bases = {
            "static": Int8MixedSettings(activation="u8" if vnni else "s8", scope=scope),
            "dynamic": Int8MixedSettings(base="dynamic", reduce_range=not vnni),
        }
        out = []
        for base in _bases(diagnosis):
            count = _mixed_forecast.layers(_int8.quantisable(diagnosis, _KINDS[base]))
            cost_s = _cost_s(candidate, diagnosis, base, count)
            ladder = [2**i for i in range(count.bit_length()) if 2 * 2**i < count]
            out += [
                Option(settings=replace(bases[base], spare=spare), cost_s=cost_s, alike=f"{base} {scope}")
                for spare in ladder
            ]
        return sorted(out, key=lambda option: option.settings.spare)

    def predict(
        self, candidate: Candidate, settings: Int8MixedSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """As if all were quantised, with the spared layers' share at float rates.

        Which layers that will be is not known before: the value takes their share by count, the ends take the
        smallest and the largest layers.
        """
        threads = candidate.execution.threads
        floats = predict.moved(diagnosis, machine, target=_TARGET, dtype="fp32", threads=threads)
        ops = _int8.quantisable(diagnosis, _KINDS[settings.base])
        if settings.base == "static":
            whole = predict.moved(diagnosis, machine, target=_TARGET, dtype="int8", threads=threads)
        else:
            whole = _int8.partly_moved(diagnosis, machine, ops, target=_TARGET, threads=threads)
            whole = _int8.widened(whole, low=0.9)
        mixed = _mixed_forecast.between(floats, whole, ops, settings.spare)
        return _mixed_forecast.for_goal(candidate, mixed, ops, settings.spare)

    def apply(self, candidate: Candidate, settings: Int8MixedSettings) -> tuple[Candidate, Change]:
        """Quantise whole, rank the layers that were, quantise again without the worst.

        ``facts`` name the spared layers and say what sparing them gave: SQNR at the outputs before and after.
        With as many layers as ``spare`` or fewer nothing is quantised: a no-op.
        """
        out = Path(candidate.workspace) / "int8_mixed.onnx"
        with tempfile.TemporaryDirectory(dir=candidate.workspace) as scratch:
            ready = _onnx_int8.preprocess(Path(candidate.model.path), Path(scratch))
            whole = Path(scratch) / "whole.onnx"
            _quantise(ready, whole, candidate, settings, exclude=())
            eligible = _onnx_int8.weighted(ready)
            layers = _sensitivity.layers_of(ready, _onnx_int8.quantised(whole) & eligible)
            facts: dict[str, Scalar] = {"layers": len(layers)}
            if len(layers) <= settings.spare:
                _copy(ready, out)
            else:
                facts |= _spared(ready, whole, out, candidate, settings, layers)
        return _onnx_int8.finish(self, candidate, settings, out, eligible=eligible, target=_TARGET, facts=facts)


def _spared(
    ready: Path,
    whole: Path,
    out: Path,
    candidate: Candidate,
    settings: Int8MixedSettings,
    layers: Sequence[_sensitivity.Layer],
) -> dict[str, Scalar]:
    """Write the model without the worst layers to ``out``; what was found out about them."""
    judge = _sensitivity.Judge(ready, candidate, batches.batch_of(ready, candidate.snapshot.inputs))
    found = _sensitivity.rank(layers, _alone(ready, whole, judge, settings))
    worst = [one.name for one in found[: settings.spare]]
    _quantise(ready, out, candidate, settings, exclude=worst)
    _sensitivity.save(found, out.parent / "sensitivity.json")
    return {
        "spared": ", ".join(worst[:_NAMED]),
        "worst": found[0].name,
        "worst_op": found[0].op,
        "worst_alone_db": _sensitivity.decibel(found[0].error),
        "spared_bytes": sum(one.weight_bytes for one in found[: settings.spare]),
        "whole_sqnr_db": _sensitivity.decibel(judge.error(whole)),
        "sqnr_db": _sensitivity.decibel(judge.error(out)),
    }


def _alone(
    ready: Path, whole: Path, judge: _sensitivity.Judge, settings: Int8MixedSettings
) -> Callable[[list[str]], float]:
    """What measures a set of layers: the noise when they and nothing else are quantised."""
    only = _sensitivity.OnlyThese(ready, whole) if settings.base == "static" else None
    path = ready.with_name("alone.onnx")

    def error(names: list[str]) -> float:
        if only is not None:
            only.write(names, path)
        else:
            _onnx_quantisers.dynamic(
                ready, path, per_channel=settings.per_channel, reduce_range=settings.reduce_range, only=names
            )
        found = judge.error(path)
        for left in path.parent.glob(f"{path.name}*"):
            left.unlink()
        return found

    return error


def _quantise(
    ready: Path, out: Path, candidate: Candidate, settings: Int8MixedSettings, *, exclude: Sequence[str]
) -> None:
    if settings.base == "dynamic":
        per_channel, narrow = settings.per_channel, settings.reduce_range
        _onnx_quantisers.dynamic(ready, out, per_channel=per_channel, reduce_range=narrow, exclude=exclude)
        return
    _onnx_quantisers.static(
        ready,
        out,
        candidate,
        activation=settings.activation,
        per_channel=settings.per_channel,
        calibration=settings.calibration,
        percentile=settings.percentile,
        reduce_range=settings.reduce_range,
        scope=settings.scope,
        rows=settings.rows,
        exclude=exclude,
    )


def _copy(ready: Path, out: Path) -> None:
    """The float model at ``out``, its weights beside it where they are large."""
    import onnx

    large = _onnx_int8.is_large(ready)
    if large:
        onnx.save(onnx.load(str(ready)), str(out), save_as_external_data=True, location=f"{out.name}.data")
    else:
        shutil.copyfile(ready, out)


def _bases(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Dynamic first where products are most of the arithmetic, and static after it; static alone elsewhere."""
    total = sum(op.flops or 0.0 for op in diagnosis.ledger.ops)
    products = sum(op.flops or 0.0 for op in diagnosis.ledger.ops if op.kind in _PRODUCTS)
    return ("dynamic", "static") if products > total / 2 else ("static",)


def _cost_s(candidate: Candidate, diagnosis: Diagnosis, base: str, count: int) -> float:
    """Two quantisations, and a model written, loaded and run on the rows of the ranking for each layer."""
    batches_s = _int8.pass_s(candidate, diagnosis)
    once_s = batches_s / max(1, candidate.snapshot.calibration_batches)
    judged_s = once_s * _sensitivity.ROWS / max(1, candidate.snapshot.batch)
    layer_s = _SESSION_S + candidate.snapshot.weights_bytes / _COPY_BYTES_S + judged_s
    both_s = 6.0 if base == "dynamic" else 8.0 + 4.0 * batches_s
    return both_s + min(count + 3, _sensitivity.LIMIT + 3) * layer_s
