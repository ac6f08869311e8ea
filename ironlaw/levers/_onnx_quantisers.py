"""ONNX Runtime's two post-training quantisers, called one way by every lever that needs them.

Why here: levers do not import each other, and what one of them leaves in float must be quantised by the same call as
what another quantises whole. ``exclude`` holds names of nodes that stay in float. Calibration data is fed one batch at
a time, so that only one batch's activations are held; without any there is no static quantiser.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.forms import batch as batches
from ironlaw.levers import _calibration_data, _onnx_int8
from ironlaw.levers._quiet import quiet
from ironlaw.records import Candidate

if TYPE_CHECKING:
    import numpy as np

METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
ACTIVATIONS = {"u8": "QUInt8", "s8": "QInt8"}
WEIGHTS = {"s8": "QInt8", "u8": "QUInt8"}
SCOPES = ("all", "weighted")
_WEIGHTED = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
_DYNAMIC = ["MatMul", "Gemm", "LSTM"]


def static(
    ready: Path,
    out: Path,
    candidate: Candidate,
    *,
    activation: str = "u8",
    per_channel: bool = True,
    calibration: str = "minmax",
    percentile: float = 99.99,
    reduce_range: bool = False,
    scope: str = "all",
    embeddings: bool = False,
    rows: int = 0,
    exclude: Collection[str] = (),
) -> int:
    """Write the QDQ model to ``out``; the number of calibration rows that were used."""
    from onnxruntime import quantization as ort

    feeds, used = _calibration_data.feeds(candidate, batches.batch_of(ready, candidate.snapshot.inputs), rows)
    extra: dict[str, Any] = {"CalibStridedMinMax": 1}
    if calibration == "percentile":
        extra["CalibPercentile"] = percentile
    weighted = scope == "weighted"
    nodes = _onnx_int8.weighted(ready) | (_onnx_int8.tables(ready) if embeddings else frozenset())
    with quiet():
        ort.quantize_static(
            ready,
            out,
            _reader(feeds),
            quant_format=ort.QuantFormat.QDQ,
            op_types_to_quantize=[*_WEIGHTED, "Gather"] if weighted else None,
            nodes_to_quantize=sorted(nodes) if weighted else None,
            nodes_to_exclude=sorted(exclude),
            per_channel=per_channel,
            reduce_range=reduce_range,
            activation_type=getattr(ort.QuantType, ACTIVATIONS[activation]),
            weight_type=ort.QuantType.QInt8,
            calibrate_method=getattr(ort.CalibrationMethod, METHODS[calibration]),
            use_external_data_format=_onnx_int8.is_large(ready),
            extra_options=extra,
        )
    return used


def dynamic(
    ready: Path,
    out: Path,
    *,
    weights: str = "s8",
    per_channel: bool = True,
    reduce_range: bool = False,
    embeddings: bool = False,
    only: Collection[str] = (),
    exclude: Collection[str] = (),
) -> None:
    """Write the model with integer products to ``out``. ``only`` holds the nodes to quantise (empty: all)."""
    from onnxruntime import quantization as ort

    with quiet():
        ort.quantize_dynamic(
            ready,
            out,
            op_types_to_quantize=[*_DYNAMIC, "Gather"] if embeddings else _DYNAMIC,
            nodes_to_quantize=_with_products(only),
            nodes_to_exclude=_with_products(exclude),
            per_channel=per_channel,
            reduce_range=reduce_range,
            weight_type=getattr(ort.QuantType, WEIGHTS[weights]),
            use_external_data_format=_onnx_int8.is_large(ready),
            extra_options={"MatMulConstBOnly": True},
        )


def _with_products(names: Collection[str]) -> list[str]:
    """The names and those of the products that ORT makes of a Gemm before it looks at names."""
    return sorted({*names, *(f"{name}_MatMul" for name in names)})


class _Reader:
    """Feeds calibration batches to ORT one at a time, so that only one batch's activations are held."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self._all = feeds
        self._now: Iterator[dict[str, np.ndarray]] = iter(feeds)

    def __len__(self) -> int:
        return len(self._all)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._now = iter(self._all[start_index:end_index])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._now, None)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self._now


def _reader(feeds: list[dict[str, np.ndarray]]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    return type("Reader", (_Reader, CalibrationDataReader), {})(feeds)
