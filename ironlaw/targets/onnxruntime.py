"""ONNX Runtime on the CPU: artefacts are one ``model.onnx`` that loads with onnxruntime alone.

Why a static batch: ORT plans memory and picks layouts from shapes, and a batch that is fixed in the
file is what will ship, so that is what is measured. Why every session option is written out: ORT's
defaults (thread count and affinity from the host, spinning, arena) change with version and machine,
and two artefacts must differ only in what a lever changed. ``call`` runs with IO binding, so that no
array is converted or copied inside the timed region.

It refuses any precision but fp32: this provider has no fp16 or bf16 kernels on most CPUs and inserts
casts without a word. The runtime is imported inside functions; the module's name equals the package's,
which is safe because imports are absolute.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ironlaw.records import Artefact, Candidate, Certificate, Execution, Form, Inspection, KernelRate, Op, UserError
from ironlaw.targets import _artefacts, _ort_calibration, _ort_graph

if TYPE_CHECKING:
    import numpy as np

PROVIDER = "CPUExecutionProvider"
LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disabled": "ORT_DISABLE_ALL",
}
MODES = {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}
_WARM_CALLS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What this target reads from ``execution.options``; everything else there is refused."""

    graph_level: str = "all"
    inter_op: int = 1
    spinning: bool = True
    mode: str = "sequential"


class OnnxRuntime:
    """The target ``onnxruntime``."""

    name: ClassVar[str] = "onnxruntime"
    forms: ClassVar[tuple[str, ...]] = (Form.ONNX,)
    needs: ClassVar[frozenset[str]] = frozenset({"package:onnxruntime", "package:onnx"})

    def export(self, candidate: Candidate, folder: Path) -> Artefact:
        """Write ``model.onnx`` with the batch of the execution, and ``example.npz``.

        Raises ``UserError`` for a form that is not ONNX, a precision other than fp32, an option that
        this target does not know, or a batch that the graph does not allow.
        """
        execution = candidate.execution
        if candidate.model.form != Form.ONNX:
            raise UserError(f"form {candidate.model.form!r}", "onnxruntime runs ONNX only", "Convert it to ONNX first.")
        if execution.precision != "fp32":
            raise UserError(
                f"precision {execution.precision!r}", "onnxruntime has no such kernels here", "Use the openvino target."
            )
        snippet = _snippet(execution, run_options(execution))
        written = _artefacts.fixed_onnx(candidate, folder / "model.onnx")
        names = _ort_graph.input_names(folder / "model.onnx")
        _artefacts.save_example(candidate, folder, _artefacts.graph_names(candidate.snapshot.inputs, names, "input"))
        return _artefacts.describe(candidate, folder, written, target=self.name, snippet=snippet)

    def load(self, artefact: Artefact) -> OnnxRuntimeSession:
        return OnnxRuntimeSession(artefact)

    def calibrate(self, threads: int, seconds: float) -> tuple[KernelRate, ...]:
        """Rates of float32 and int8 (QDQ) kernels, each kind from the profile of one graph."""
        return _ort_calibration.rates(threads, seconds, open_session=_open_for_calibration)


@dataclass(frozen=True, slots=True)
class _Native:
    binding: Any
    feeds: dict[str, Any]


class OnnxRuntimeSession:
    """A loaded artefact. ``prepare`` makes OrtValues that alias the arrays; outputs are fresh each call."""

    def __init__(self, artefact: Artefact) -> None:
        self._artefact = artefact
        self._path = str(Path(artefact.folder) / "model.onnx")
        self._options = run_options(artefact.execution)
        settings = session_options(artefact.execution.threads, self._options)
        before = _tasks()  # after the import, which starts threads of its own
        self._session = _open(self._path, settings)
        self.pool_threads = _tasks() - before + 1
        self._inputs = _artefacts.graph_names(artefact.inputs, [i.name for i in self._session.get_inputs()], "input")
        self._outputs = _artefacts.graph_names(
            artefact.outputs, [o.name for o in self._session.get_outputs()], "output"
        )

    def prepare(self, arrays: Sequence[np.ndarray]) -> _Native:
        import onnxruntime

        cast = _artefacts.conform(arrays, self._artefact.inputs)
        feeds = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(array)
            for name, array in zip(self._inputs, cast, strict=True)
            if name
        }
        return _Native(_bind(self._session, feeds, self._outputs), feeds)

    def call(self, native: _Native) -> Any:
        self._session.run_with_iobinding(native.binding)
        return native.binding

    def fetch(self, result: Any) -> list[np.ndarray]:
        return list(result.copy_outputs_to_cpu())

    def inspect(self, native: _Native) -> Inspection:
        """int8 products that saturate where this CPU has no dot product; nothing else is looked at."""
        from ironlaw.measure.inspection_onnx import saturating_pairs

        return Inspection(saturating=saturating_pairs(Path(self._path)))

    def profile(self, native: _Native, calls: int) -> tuple[Op, ...]:
        """One Op a node of the optimised graph, mean over ``calls``; control-flow nodes give their insides."""
        events, graph = self._inspect(native.feeds, calls)
        return _ort_graph.ops(events, graph, calls)

    def certify(self) -> Certificate:
        """From the optimised graph that ORT runs and from the providers in its profile."""
        native = self.prepare(_artefacts.example_arrays(self._artefact))
        events, graph = self._inspect(native.feeds, 1)
        return _ort_graph.certificate(events, graph, provider=PROVIDER, threads=self.pool_threads)

    def _inspect(self, feeds: dict[str, Any], calls: int) -> tuple[list[dict[str, Any]], Any]:
        with tempfile.TemporaryDirectory(prefix="ironlaw-ort-") as folder:
            options = session_options(self._artefact.execution.threads, self._options)
            graph_path = str(Path(folder) / "optimised.onnx")
            options.optimized_model_filepath = graph_path
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder) / "profile")
            session = _open(self._path, options)
            binding = _bind(session, feeds, self._outputs)
            for _ in range(_WARM_CALLS + calls):
                session.run_with_iobinding(binding)
            events = _ort_graph.read_profile(session.end_profiling())
            return events, _ort_graph.read_graph(graph_path)


def run_options(execution: Execution) -> RunOptions:
    """``execution.options`` as a record. Raises ``UserError`` for a name or value that is not known."""
    given = dict(execution.options)
    known = RunOptions.__dataclass_fields__
    for name in given:
        if name not in known:
            raise UserError(f"option {name!r}", "onnxruntime has none of that name", f"Use {', '.join(known)}.")
    options = RunOptions(**given)  # type: ignore[arg-type]
    if options.graph_level not in LEVELS:
        raise UserError(f"graph_level {options.graph_level!r}", "is not known", f"Use one of {', '.join(LEVELS)}.")
    if options.mode not in MODES:
        raise UserError(f"mode {options.mode!r}", "is not known", f"Use one of {', '.join(MODES)}.")
    return options


def _plain_settings(threads: int, options: RunOptions) -> tuple[dict[str, Any], dict[str, str]]:
    """Session attributes and configuration entries: the one source of both the session and the snippet."""
    attributes = {
        "intra_op_num_threads": threads,
        "inter_op_num_threads": options.inter_op,
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": options.mode == "sequential",
        "enable_mem_reuse": True,
        "log_severity_level": 3,
    }
    spin = "1" if options.spinning else "0"
    entries = {
        "session.intra_op.allow_spinning": spin,
        "session.inter_op.allow_spinning": spin,
        "session.set_denormal_as_zero": "0",
    }
    return attributes, entries


def session_options(threads: int, options: RunOptions) -> Any:
    """An ``onnxruntime.SessionOptions`` in which nothing that matters is left to a default."""
    import onnxruntime

    made = onnxruntime.SessionOptions()
    attributes, entries = _plain_settings(threads, options)
    for name, value in attributes.items():
        setattr(made, name, value)
    for name, text in entries.items():
        made.add_session_config_entry(name, text)
    made.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[options.graph_level])
    made.execution_mode = getattr(onnxruntime.ExecutionMode, MODES[options.mode])
    return made


def _snippet(execution: Execution, options: RunOptions) -> str:
    attributes, entries = _plain_settings(execution.threads, options)
    lines = [
        *_artefacts.environment_comment(execution),
        "import numpy as np, onnxruntime as ort",
        "o = ort.SessionOptions()",
        f"o.graph_optimization_level = ort.GraphOptimizationLevel.{LEVELS[options.graph_level]}",
        f"o.execution_mode = ort.ExecutionMode.{MODES[options.mode]}",
        "; ".join(f"o.{name} = {value!r}" for name, value in attributes.items()),
        f"for k, v in {entries!r}.items(): o.add_session_config_entry(k, v)",
        f's = ort.InferenceSession("model.onnx", o, providers=["{PROVIDER}"])',
        'outputs = s.run(None, dict(np.load("example.npz")))',
    ]
    return "\n".join(lines) + "\n"


def _open(path: str, options: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, options, providers=[PROVIDER])


def _open_for_calibration(model: bytes, threads: int, profile_prefix: str | None) -> Any:
    import onnxruntime

    options = session_options(threads, RunOptions())
    if profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    return onnxruntime.InferenceSession(model, options, providers=[PROVIDER])


def _bind(session: Any, feeds: dict[str, Any], outputs: Sequence[str]) -> Any:
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, value)
    for name in outputs:
        binding.bind_output(name, "cpu")
    return binding


def _tasks() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))
