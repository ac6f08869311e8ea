"""OpenVINO under calibration: layers are told apart by the input that they depend on, since it renames them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ironlaw.records import KernelRate
from ironlaw.targets import _calibration, _ov_graph

if TYPE_CHECKING:
    import numpy as np

_HINTS = {"float32": "f32", "int8": "f32", "bfloat16": "bf16"}


class _Runner:
    def __init__(self, model: bytes, feeds: dict[str, np.ndarray], dtype: str, threads: int, profiled: bool) -> None:
        import openvino

        core = openvino.Core()
        properties = {
            "INFERENCE_PRECISION_HINT": _HINTS[dtype],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": "1",
            "ENABLE_CPU_PINNING": False,
            "PERF_COUNT": profiled,
        }
        self._compiled = core.compile_model(core.read_model(model), "CPU", properties)
        self._request: Any = self._compiled.create_infer_request()
        self._only_weighted = dtype != "float32"
        for name, array in feeds.items():
            self._request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
        self._feeds = feeds  # the tensors alias these

    def call(self) -> None:
        self._request.infer(share_inputs=True, share_outputs=True)

    def node_seconds(self, calls: int) -> Mapping[str, Sequence[float]]:
        """By ``<input> <layer>``: layouts are converted once in a network, so reorders are left out.

        For int8 and bf16 only layers with weights count: what surrounds them converts to and from float.
        """
        model = self._compiled.get_runtime_model()
        root = _ov_graph.roots(model)
        kept = {
            layer.name
            for layer in _ov_graph.layers(model)
            if (layer.layer in _ov_graph.WEIGHTED if self._only_weighted else layer.layer != "Reorder")
        }
        found: dict[str, list[float]] = defaultdict(list)
        for _ in range(calls):
            self.call()
            for row in self._request.get_profiling_info():
                if row.node_name in kept and row.real_time.total_seconds() > 0:
                    found[f"{root[row.node_name]} {row.node_name}"].append(row.real_time.total_seconds())
        return found


def rates(threads: int, seconds: float) -> tuple[KernelRate, ...]:
    """Rates of every dtype that this CPU's plugin lists, within about ``seconds``."""
    import openvino

    offered = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    dtypes = [d for d, name in (("float32", "FP32"), ("bfloat16", "BF16"), ("int8", "INT8")) if name in offered]

    def opener(model: bytes, feeds: dict[str, np.ndarray], dtype: str, profiled: bool) -> _Runner:
        return _Runner(model, feeds, dtype, threads, profiled)

    return _calibration.rates("openvino", dtypes, threads, seconds, opener)
