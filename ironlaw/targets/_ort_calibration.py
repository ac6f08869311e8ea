"""ONNX Runtime under calibration: how a model is run and how its profile becomes seconds by node."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.records import KernelRate
from ironlaw.targets import _calibration, _ort_graph

if TYPE_CHECKING:
    import numpy as np

DTYPES = ("float32", "int8")
OpenSession = Callable[[bytes, int, str | None], Any]
"""(model, threads, prefix of the profile's file or None) -> an InferenceSession."""


class _Runner:
    def __init__(self, model: bytes, feeds: dict[str, np.ndarray], session: Callable[[str | None], Any]) -> None:
        self._open, self._feeds = session, feeds
        self._session = session(None)
        self._binding = self._bind(self._session)

    def _bind(self, session: Any) -> Any:
        binding = session.io_binding()
        for name, array in self._feeds.items():
            binding.bind_cpu_input(name, array)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        return binding

    def call(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def node_seconds(self, calls: int) -> Mapping[str, Sequence[float]]:
        with tempfile.TemporaryDirectory(prefix="ironlaw-ort-") as folder:
            session = self._open(str(Path(folder) / "profile"))
            binding = self._bind(session)
            for _ in range(calls + 2):
                session.run_with_iobinding(binding)
            events = _ort_graph.read_profile(session.end_profiling())
        found: dict[str, list[float]] = defaultdict(list)
        for event in events:
            found[event["name"]].append(1e-6 * event["dur"])
        return {name: times[2:] for name, times in found.items()}


def rates(threads: int, seconds: float, *, open_session: OpenSession) -> tuple[KernelRate, ...]:
    """Rates of float32 and of int8 kernels (QDQ, fused by ORT) within about ``seconds``."""

    def opener(model: bytes, feeds: dict[str, np.ndarray], dtype: str, profiled: bool) -> _Runner:
        return _Runner(model, feeds, lambda prefix: open_session(model, threads, prefix))

    return _calibration.rates("onnxruntime", DTYPES, threads, seconds, opener)
