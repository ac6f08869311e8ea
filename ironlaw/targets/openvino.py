"""OpenVINO on the CPU: artefacts are ``model.xml`` and ``model.bin`` at a static batch.

Why every property is written out: OpenVINO takes bf16 by itself where the CPU has it, and threads, streams and
pinning from the host. Here ``INFERENCE_PRECISION_HINT`` always says what the execution says, so that a gain
from bf16 is never booked as a gain of the runtime. With ``streams`` above 1 the batch is split among that many
requests that run at once, each on its share of the threads: no synchronisation inside an operator.
It refuses fp16, which a CPU only emulates, and never lets the package talk to a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ironlaw.forms.telemetry import silence
from ironlaw.records import Artefact, Candidate, Certificate, Execution, Form, KernelRate, Op, UserError
from ironlaw.targets import _artefacts, _ov_calibration, _ov_graph

if TYPE_CHECKING:
    import numpy as np

DEVICE = "CPU"
PRECISIONS = {"fp32": "f32", "bf16": "bf16"}
HINTS = {"latency": "LATENCY", "throughput": "THROUGHPUT"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What this target reads from ``execution.options``; everything else there is refused.

    ``snippets=False`` keeps operators out of JIT-fused subgraphs: OpenVINO 2026.4 computes garbage for some int8
    multi-layer perceptrons when it fuses them whole (seen: -189 dB at batch 4, right at 1 and 64).
    ``round_rows=False`` keeps the activations of products with compressed weights in float: by itself OpenVINO rounds
    them to int8 in groups, which is faster.
    """

    hint: str = "latency"
    streams: int = 1
    pinning: bool = False
    snippets: bool = True
    round_rows: bool = True


class OpenVino:
    """The target ``openvino``."""

    name: ClassVar[str] = "openvino"
    forms: ClassVar[tuple[str, ...]] = (Form.OPENVINO,)
    needs: ClassVar[frozenset[str]] = frozenset({"package:openvino"})

    def export(self, candidate: Candidate, folder: Path) -> Artefact:
        """Write the model reshaped to the batch a stream takes, and ``example.npz``.

        Raises ``UserError`` for another form, a precision other than fp32 or bf16, an unknown option, a batch
        that the streams do not divide, or a model that cannot take the batch.
        """
        execution = candidate.execution
        if candidate.model.form != Form.OPENVINO:
            raise UserError(f"form {candidate.model.form!r}", "openvino runs its own IR only", "Convert it first.")
        options = run_options(execution)
        properties = compile_properties(execution, options)
        silence()
        import openvino

        folder.mkdir(parents=True, exist_ok=True)
        model = openvino.Core().read_model(candidate.model.path)
        names = _reshape(model, candidate, options.streams)
        openvino.save_model(model, str(folder / "model.xml"), compress_to_fp16=False)
        _artefacts.save_example(candidate, folder, names)
        snippet = _snippet(execution, options, properties)
        return _artefacts.describe(candidate, folder, ("model.xml", "model.bin"), target=self.name, snippet=snippet)

    def load(self, artefact: Artefact) -> OpenVinoSession:
        return OpenVinoSession(artefact)

    def calibrate(self, threads: int, seconds: float) -> tuple[KernelRate, ...]:
        """Rates of float32, bfloat16 (where the CPU offers it) and int8 kernels."""
        silence()
        return _ov_calibration.rates(threads, seconds)


@dataclass(frozen=True, slots=True)
class _Native:
    """For each stream, its inputs as tensors that alias the arrays."""

    tensors: tuple[tuple[tuple[str, Any], ...], ...]


class OpenVinoSession:
    """A loaded artefact; one infer request a stream. Outputs live in the requests until the next call."""

    def __init__(self, artefact: Artefact) -> None:
        silence()
        self._artefact = artefact
        self._options = run_options(artefact.execution)
        self._compiled = self._compile(profiled=False)
        self._requests = [self._compiled.create_infer_request() for _ in range(self._options.streams)]
        self._bound: _Native | None = None
        names = [port.get_any_name() for port in self._compiled.inputs]
        self._inputs = _artefacts.graph_names(artefact.inputs, names, "input")

    def prepare(self, arrays: Sequence[np.ndarray]) -> _Native:
        import numpy as np
        import openvino

        cast = _artefacts.conform(arrays, self._artefact.inputs)
        streams = self._options.streams
        parts: list[list[tuple[str, Any]]] = [[] for _ in range(streams)]
        for name, array, spec in zip(self._inputs, cast, self._artefact.inputs, strict=True):
            pieces = np.split(array, streams) if spec.batched and streams > 1 else [array] * streams
            for part, piece in zip(parts, pieces, strict=True):
                if name:
                    part.append((name, openvino.Tensor(np.ascontiguousarray(piece), shared_memory=True)))
        return _Native(tuple(tuple(part) for part in parts))

    def call(self, native: _Native) -> list[Any]:
        if native is not self._bound:
            self._bind(self._requests, native)
            self._bound = native
        _run(self._requests)
        return self._requests

    def fetch(self, result: list[Any]) -> list[np.ndarray]:
        import numpy as np

        out = []
        for spec in self._artefact.outputs:
            pieces = [request.get_tensor(spec.name).data for request in result]
            out.append(np.concatenate(pieces) if spec.batched and len(pieces) > 1 else np.array(pieces[0]))
        return [a.astype(np.float32) if a.dtype.name == "bfloat16" else a for a in out]

    def profile(self, native: _Native, calls: int) -> tuple[Op, ...]:
        """One Op a layer, mean over ``calls``, from performance counters of a compiled model of its own.

        With several streams the layers of the first are shown: all run the same.
        """
        compiled = self._compile(profiled=True)
        requests = [compiled.create_infer_request() for _ in range(self._options.streams)]
        self._bind(requests, native)
        for _ in range(3):
            _run(requests)
        total: dict[str, float] = {}
        for _ in range(calls):
            _run(requests)
            for row in requests[0].get_profiling_info():
                total[row.node_name] = total.get(row.node_name, 0.0) + row.real_time.total_seconds() / calls
        return _ov_graph.ops(_ov_graph.layers(compiled.get_runtime_model()), total)

    def certify(self) -> Certificate:
        """From the execution graph and from what the compiled model answers about itself."""
        facts = {
            key: self._compiled.get_property(key)
            for key in (
                "INFERENCE_PRECISION_HINT",
                "INFERENCE_NUM_THREADS",
                "NUM_STREAMS",
                "ENABLE_CPU_PINNING",
                "DYNAMIC_QUANTIZATION_GROUP_SIZE",
            )
        }
        graph = _ov_graph.layers(self._compiled.get_runtime_model())
        threads = int(facts["INFERENCE_NUM_THREADS"])
        return _ov_graph.certificate(graph, precision=self._artefact.execution.precision, threads=threads, facts=facts)

    def _compile(self, *, profiled: bool) -> Any:
        import openvino

        properties = dict(compile_properties(self._artefact.execution, self._options))
        if profiled:
            properties["PERF_COUNT"] = True
        return openvino.Core().compile_model(str(Path(self._artefact.folder) / "model.xml"), DEVICE, properties)

    @staticmethod
    def _bind(requests: Sequence[Any], native: _Native) -> None:
        for request, part in zip(requests, native.tensors, strict=True):
            for name, tensor in part:
                request.set_tensor(name, tensor)


def _run(requests: Sequence[Any]) -> None:
    if len(requests) == 1:
        requests[0].infer(share_inputs=True, share_outputs=True)
        return
    for request in requests:
        request.start_async()
    for request in requests:
        request.wait()


def run_options(execution: Execution) -> RunOptions:
    """``execution.options`` as a record. Raises ``UserError`` for a name or value that is not known."""
    known = RunOptions.__dataclass_fields__
    for name, _ in execution.options:
        if name not in known:
            raise UserError(f"option {name!r}", "openvino has none of that name", f"Use {', '.join(known)}.")
    options = RunOptions(**dict(execution.options))  # type: ignore[arg-type]
    if options.hint not in HINTS:
        raise UserError(f"hint {options.hint!r}", "is not known", f"Use one of {', '.join(HINTS)}.")
    if options.streams < 1 or execution.batch % options.streams or execution.threads < options.streams:
        raise UserError(
            f"{options.streams} streams",
            f"do not divide a batch of {execution.batch} and {execution.threads} threads",
            "Use a number of streams that divides the batch, at most one a thread.",
        )
    return options


def compile_properties(execution: Execution, options: RunOptions) -> dict[str, Any]:
    """Properties of ``compile_model``: the one source of both the session and the snippet.

    Raises ``UserError`` for a precision that this target does not run.
    """
    if execution.precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise UserError(f"precision {execution.precision!r}", "openvino does not run it on a CPU", f"Use {known}.")
    properties: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[execution.precision],
        "INFERENCE_NUM_THREADS": execution.threads,
        "NUM_STREAMS": str(options.streams),
        "PERFORMANCE_HINT": HINTS[options.hint],
        "ENABLE_CPU_PINNING": options.pinning,
        "CPU_DENORMALS_OPTIMIZATION": False,
    }
    if not options.snippets:
        properties["SNIPPETS_MODE"] = "DISABLE"
    if not options.round_rows:
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    return properties


def _reshape(model: Any, candidate: Candidate, streams: int) -> tuple[str, ...]:
    """Make the batch of a stream static in place; names of the inputs as the graph has them."""
    snapshot, batch = candidate.snapshot, candidate.execution.batch
    names = _artefacts.graph_names(snapshot.inputs, [port.get_any_name() for port in model.inputs], "input")
    shapes = {
        name: [batch // streams if spec.batched else spec.shape[0], *spec.shape[1:]]
        for name, spec in zip(names, snapshot.inputs, strict=True)
        if name and spec.shape
    }
    try:
        model.reshape(shapes)
    except RuntimeError as error:
        wrong = str(error).strip().splitlines()[-1]
        raise UserError(f"batch {batch}", f"the model cannot take it: {wrong}", "Keep the batch.") from error
    return names


def _snippet(execution: Execution, options: RunOptions, properties: Mapping[str, Any]) -> str:
    lines = [
        *_artefacts.environment_comment(execution),
        "import numpy as np, openvino as ov",
        f'compiled = ov.Core().compile_model("model.xml", "{DEVICE}", {dict(properties)!r})',
        'feed = dict(np.load("example.npz"))',
    ]
    if options.streams == 1:
        lines += ["request = compiled.create_infer_request()", "outputs = list(request.infer(feed).values())"]
    else:
        n = options.streams
        lines += [
            f"parts = [{{k: np.split(v, {n})[i] for k, v in feed.items()}} for i in range({n})]  # {n} at once",
            f"requests = [compiled.create_infer_request() for _ in range({n})]",
            "[r.start_async(p) for r, p in zip(requests, parts)]; [r.wait() for r in requests]",
            "outputs = [np.concatenate(o) for o in zip(*(list(r.results.values()) for r in requests))]",
        ]
    return "\n".join(lines) + "\n"
