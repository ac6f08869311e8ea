"""AOTInductor: a compiled package (``model.pt2``) that torch alone loads, with no compilation and no Python inside.

The package is compiled for one batch, precision, thread count (OpenMP regions carry it) and instruction
set. Casts of the inputs and the layout are exported into the graph, so that it takes what the user's model does.
Options: ``layout``, ``freezing`` (weights folded and packed at compile time). It is certified from the source that the
compiler wrote into the package, not from a profile: its library calls go past the dispatcher, where no profiler
sees them.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ironlaw.contracts import Session
from ironlaw.forms import convert, files
from ironlaw.measure.kinds import ARITHMETIC, aten_kind
from ironlaw.records import Artefact, Candidate, Certificate, Form, KernelRate, Op
from ironlaw.targets import _torch_run as runs

if TYPE_CHECKING:
    import numpy as np

PACKAGE = "model.pt2"


class AotInductor:
    """The target ``aotinductor``."""

    name: ClassVar[str] = "aotinductor"
    forms: ClassVar[tuple[str, ...]] = (Form.EXPORTED,)
    needs: ClassVar[frozenset[str]] = frozenset({"package:torch", "compiler"})

    def export(self, candidate: Candidate, folder: Path) -> Artefact:
        """Compile for the execution. Tens of seconds, nearly all in the C++ compiler.

        Raises:
            UserError: the model is fixed at another batch.
            RuntimeError: the compiler or the model refuses.
        """
        import torch
        import torch._inductor.config as inductor

        runs.check_batch(candidate)
        candidate = convert(candidate, Form.EXPORTED)
        execution = candidate.execution
        inputs = runs.tensors(list(files.example(candidate.snapshot, execution.batch).values()))
        source = Path(candidate.model.path)
        execution = runs.settle_cast(source, Form.EXPORTED, execution, inputs)
        torch.set_num_threads(execution.threads)
        inductor.compile_threads = 1
        runner = runs.Runner(runs.read(source, Form.EXPORTED), execution)
        folder.mkdir(parents=True, exist_ok=True)
        with torch.no_grad():  # with gradients on, inductor ignores freezing without a word
            torch._inductor.aoti_compile_and_package(
                torch.export.export(_whole(runner), inputs),
                package_path=str(folder / PACKAGE),
                inductor_configs={"freezing": bool(execution.option("freezing", False))},
            )
        candidate = runs.with_execution(candidate, execution)
        return runs.describe(
            candidate, folder, [PACKAGE], kind="compiled", target=self.name, snippet=_snippet(candidate)
        )

    def load(self, artefact: Artefact) -> Session:
        return _AotSession(artefact)

    def calibrate(self, threads: int, seconds: float) -> tuple[KernelRate, ...]:
        """None of its own: its library kernels are torch's, and its fused loops depend on the graph."""
        return ()


class _AotSession:
    def __init__(self, artefact: Artefact) -> None:
        import torch

        self._artefact = artefact
        torch.set_num_threads(artefact.execution.threads)
        self._path = Path(artefact.folder) / artefact.files[0]
        self._model = torch._inductor.aoti_load_package(str(self._path))

    def prepare(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        return runs.tensors(arrays)

    def call(self, native: tuple[Any, ...]) -> tuple[Any, ...]:
        import torch

        with torch.inference_mode():
            return runs.as_tuple(self._model(*native))

    def fetch(self, result: tuple[Any, ...]) -> list[np.ndarray]:
        return runs.fetch(result)

    def profile(self, native: tuple[Any, ...], calls: int) -> tuple[Op, ...]:
        from ironlaw.measure import profile_torch

        ops: tuple[Op, ...] = profile_torch.profile(lambda: self.call(native), calls)
        return ops

    def certify(self) -> Certificate:
        fused, calls = written_calls(self._path)
        frozen = "weights are frozen" if self._artefact.execution.option("freezing") else "weights are not frozen"
        extra = [f"operators: library calls in the source of the package, beside {fused} fused kernels", frozen]
        return runs.certificate(self._artefact, calls, None, extra)


def _whole(runner: runs.Runner) -> Any:
    """The runner as a module, so that casts and layout are part of the graph."""
    import torch

    class Whole(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = runner.module
            self.training = False

        def forward(self, *inputs: Any) -> Any:
            return runner.traced(*inputs)

    return Whole()


def written_calls(package: Path) -> tuple[int, list[Op]]:
    """What the compiler wrote into a package: the number of its own loops, and the arithmetic library calls.

    The dtype of a call is that of the first operand whose allocation or declaration states one, else ``unknown``.
    """
    with zipfile.ZipFile(package) as archive:
        text = "".join(archive.read(name).decode() for name in archive.namelist() if name.endswith(".cpp"))
    return len(set(re.findall(r"\bcpp_fused_\w+", text))), library_calls(text)


def library_calls(source: str) -> list[Op]:
    """The arithmetic library calls in the C++ that AOTInductor writes, in order."""
    dtypes = {
        name: dtype
        for dtype, name in re.findall(r"aoti_torch_empty_strided\(.*cached_torch_dtype_(\w+),.*&(\w+?)_handle", source)
    }
    names = dict(re.findall(r'constants_info_\[(\d+)\]\.name = "(\w+)"', source))
    for index, dtype in re.findall(r"constants_info_\[(\d+)\]\.dtype = cached_torch_dtype_(\w+)", source):
        dtypes[names.get(index, "")] = dtype
    found: list[Op] = []
    for name, operands in re.findall(r"\baoti_torch_cpu_(\w+)\((.*)", source):
        plain = name.removeprefix("mkldnn_").removesuffix("_out")
        kind = aten_kind(plain)
        if kind in ARITHMETIC:
            dtype = next((dtypes[word] for word in re.findall(r"\w+", operands) if word in dtypes), "unknown")
            found.append(
                Op(
                    name=plain,
                    kind=kind,
                    calls=1,
                    flops=None,
                    bytes_low=0.0,
                    bytes_high=0.0,
                    dtype=dtype,
                    shape=f"#{len(found)}",
                )
            )
    return found


def _snippet(candidate: Candidate) -> str:
    execution = candidate.execution
    names = ", ".join(f'torch.from_numpy(arrays["{spec.name}"])' for spec in candidate.snapshot.inputs)
    lines = [
        "import numpy, torch",
        f"torch.set_num_threads({execution.threads})",
        f'model = torch._inductor.aoti_load_package("{PACKAGE}")',
        'arrays = numpy.load("example.npz")',
        f"inputs = [{names}]",
        "with torch.inference_mode():",
        "    outputs = model(*inputs)",
    ]
    if execution.variables:
        lines[0] += "  # start with " + " ".join(f"{k}={v}" for k, v in execution.variables)
    return "\n".join(lines)
