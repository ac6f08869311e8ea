"""One suite for every target: what is exported runs, gives the model's outputs, says what it is, and ships.

Outputs are compared with the eager model in float32, within what the precision allows. The snippet of every
artefact runs in a fresh process that cannot import ironlaw.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_workload import Cnn, TwoInputs, candidate, image

from ironlaw import forms, registry
from ironlaw.contracts import Session, Target
from ironlaw.forms import eager, files
from ironlaw.measure.kinds import ARITHMETIC, KINDS
from ironlaw.records import Artefact, Candidate, Execution, UserError, from_data, to_data
from ironlaw.targets.aotinductor import library_calls

TOLERANCE = {"fp32": 2e-5, "bf16": 4e-2, "fp16": 4e-3}
"""Relative to the largest output: a few roundings of each format over a handful of layers."""


@dataclasses.dataclass(frozen=True)
class Case:
    target: str
    form: str
    model: type = Cnn
    batch: int = 1
    precision: str = "fp32"
    options: tuple[tuple[str, Any], ...] = ()
    threads: int = 1
    heavy: bool = False

    @property
    def name(self) -> str:
        words = [self.target, self.form, self.model.__name__, f"b{self.batch}", self.precision, f"t{self.threads}"]
        return "-".join([*words, *(f"{k}={v}" for k, v in self.options)])


CHANNELS_LAST = (("layout", "channels_last"),)
CASES = [
    Case("torch", "eager"),
    Case("torch", "eager", TwoInputs, batch=3),
    Case("torch", "eager", batch=4, precision="bf16", options=CHANNELS_LAST, threads=2),
    Case("torch", "eager", precision="fp16"),
    Case("torch", "exported", batch=3, options=CHANNELS_LAST),
    Case("torch", "exported", TwoInputs, batch=2, precision="bf16"),
    Case("torch", "eager", batch=2, options=(("compile", True), ("freezing", True)), heavy=True),
    Case("torch", "exported", options=(("compile", True), ("freezing", False)), precision="bf16", heavy=True),
    Case("aotinductor", "exported", batch=2, options=(("freezing", True),), heavy=True),
    Case("aotinductor", "exported", TwoInputs, batch=2, precision="bf16", heavy=True),
    Case("onnxruntime", "onnx", batch=3, threads=2),
    Case("onnxruntime", "onnx", TwoInputs, batch=2),
    Case("openvino", "openvino", batch=3),
    Case("openvino", "openvino", TwoInputs, batch=2),
    Case("openvino", "openvino", precision="bf16"),
]


@dataclasses.dataclass(frozen=True)
class Loaded:
    case: Case
    candidate: Candidate
    artefact: Artefact
    session: Session

    @property
    def arrays(self) -> list[np.ndarray]:
        return list(files.example(self.candidate.snapshot, self.case.batch).values())

    def expected(self) -> list[np.ndarray]:
        """The eager model's answer in float32."""
        model = eager.load(Path(self.candidate.snapshot.folder) / "forms" / "eager" / eager.NAME)
        with torch.no_grad():
            found = model(*[torch.from_numpy(a) for a in self.arrays])
        return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]


def example_of(model: type) -> Any:
    if model is Cnn:
        return image()
    mask = torch.ones(1, 7)
    mask[0, 5:] = 0
    return torch.arange(7).reshape(1, 7), mask


@pytest.fixture(
    scope="module", params=[pytest.param(c, marks=pytest.mark.slow if c.heavy else (), id=c.name) for c in CASES]
)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    case: Case = request.param
    needs = registry.targets()[case.target].needs | ({"compiler"} if dict(case.options).get("compile") else set())
    if missing := registry.unmet(needs):
        pytest.skip("; ".join(missing))
    root = tmp_path_factory.mktemp("target")
    execution = Execution(
        target=case.target, batch=case.batch, threads=case.threads, precision=case.precision, options=case.options
    )
    start = candidate(root / "store", case.model(), example_of(case.model))
    there = dataclasses.replace(forms.convert(start, case.form), execution=execution)
    before = torch.get_num_threads()
    artefact = registry.target(case.target).export(there, root / "artefact")
    session = registry.target(case.target).load(artefact)
    yield Loaded(case, there, artefact, session)
    torch.set_num_threads(before)


def error(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    assert [f.shape for f in found] == [e.shape for e in expected]
    return max(float(np.abs(f - e).max() / np.abs(e).max()) for f, e in zip(found, expected, strict=True))


def test_outputs_are_the_models(loaded: Loaded) -> None:
    result = loaded.session.call(loaded.session.prepare(loaded.arrays))
    found = loaded.session.fetch(result)
    assert all(f.dtype == np.float32 for f in found)
    assert error(found, loaded.expected()) < TOLERANCE[loaded.case.precision]


def test_outputs_follow_the_inputs(loaded: Loaded) -> None:
    """A session that answers from the example's constants would pass the test above."""
    rng = np.random.default_rng(5)
    arrays = [
        rng.standard_normal(a.shape).astype(np.float32) if a.ndim == 4 else a + 9 if a.dtype == np.int64 else a
        for a in loaded.arrays
    ]
    model = eager.load(Path(loaded.candidate.snapshot.folder) / "forms" / "eager" / eager.NAME)
    with torch.no_grad():
        expected = model(*[torch.from_numpy(a) for a in arrays])
    expected = [t.numpy() for t in (expected if isinstance(expected, tuple) else (expected,))]
    found = loaded.session.fetch(loaded.session.call(loaded.session.prepare(arrays)))
    assert error(found, expected) < TOLERANCE[loaded.case.precision]
    assert error(found, loaded.expected()) > 10 * TOLERANCE["fp32"]


def test_the_record_describes_what_is_on_disk(loaded: Loaded) -> None:
    artefact = loaded.artefact
    folder = Path(artefact.folder)
    assert artefact.kind in ("file", "compiled", "recipe")
    assert artefact.target == loaded.case.target
    assert artefact.size_bytes == sum((folder / name).stat().st_size for name in artefact.files)
    assert [spec.shape[0] for spec in artefact.inputs] == [loaded.case.batch] * len(artefact.inputs)
    assert [spec.shape[0] for spec in artefact.outputs] == [loaded.case.batch] * len(artefact.outputs)
    assert (folder / artefact.example).exists()
    assert from_data(Artefact, to_data(artefact)) == artefact


def test_the_certificate_comes_from_what_ran(loaded: Loaded) -> None:
    certificate = loaded.session.certify()
    assert certificate.proven
    assert certificate.evidence
    assert certificate.threads == loaded.case.threads
    assert 0 <= certificate.converted <= certificate.eligible
    if loaded.case.precision != "fp32":
        names = {"bf16": {"bf16", "bfloat16"}, "fp16": {"fp16", "float16"}}[loaded.case.precision]
        if _has(loaded.case):
            assert names & set(dict(certificate.precisions).values()), certificate
            assert certificate.converted > 0
        else:  # it computes in fp32 without a word, and the certificate says so
            assert certificate.converted == 0 < certificate.eligible
            assert certificate.fallbacks or "float32" in str(certificate.precisions)
    if loaded.case.target in ("torch", "aotinductor"):
        products = 3 if loaded.case.model is Cnn else 1
        assert 1 <= certificate.eligible == certificate.converted <= products, certificate
        if not dict(loaded.case.options).get("compile"):  # a compiler may write a small product as a loop of its own
            assert certificate.eligible == products, certificate


def _has(case: Case) -> bool:
    """Whether the runtime computes in that precision on this CPU; torch does on every one."""
    if case.target != "openvino":
        return True
    import openvino

    return case.precision.upper() in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def test_the_profile_names_the_work(loaded: Loaded) -> None:
    ops = loaded.session.profile(loaded.session.prepare(loaded.arrays), 3)
    assert {op.kind for op in ops} <= set(KINDS)
    assert all(op.time_s is not None and op.time_s >= 0 and op.calls >= 1 for op in ops)
    assert sum(op.time_s or 0.0 for op in ops) > 0
    if loaded.case.model is Cnn and loaded.case.target != "aotinductor":  # its library calls bypass the profiler
        assert any(op.kind in ARITHMETIC for op in ops)
    if loaded.case.target == "torch" and not loaded.case.heavy:
        wanted = {"conv": 1, "depthwise": 1, "matmul": 1} if loaded.case.model is Cnn else {"embedding": 1, "matmul": 1}
        seen = {kind: sum(op.calls for op in ops if op.kind == kind) for kind in wanted}
        assert seen == wanted


@pytest.mark.slow
def test_the_snippet_runs_where_ironlaw_is_not(loaded: Loaded, tmp_path: Path) -> None:
    lines = [line for line in loaded.artefact.snippet.splitlines() if line.strip()]
    assert len(lines) <= 10
    program = [
        "import sys; sys.modules['ironlaw'] = None",
        loaded.artefact.snippet,
        "import numpy",
        "parts = outputs if isinstance(outputs, (tuple, list)) else [outputs]",
        "arrays = [numpy.asarray(p.float().numpy() if hasattr(p, 'float') else p) for p in parts]",
        f"numpy.savez({str(tmp_path / 'out.npz')!r}, *arrays)",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(program)],
        cwd=loaded.artefact.folder,
        env={**os.environ, **{k: str(v) for k, v in loaded.artefact.execution.variables}},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(tmp_path / "out.npz") as stored:
        found = [stored[name] for name in stored.files]
    assert error(found, loaded.expected()) < TOLERANCE[loaded.case.precision]


@pytest.mark.parametrize("name", list(registry.targets()))
def test_declares_its_facts(name: str) -> None:
    target = registry.targets()[name]
    assert isinstance(target, Target)
    assert target.forms
    assert any(forms.route("eager", form) is not None for form in target.forms), "no model could come here"


@pytest.mark.parametrize("name", ["torch", "aotinductor", "onnxruntime"])
def test_a_batch_that_the_model_cannot_take_is_refused(name: str, tmp_path: Path) -> None:
    if missing := registry.unmet(registry.targets()[name].needs):
        pytest.skip("; ".join(missing))
    start = candidate(tmp_path)
    fixed = dataclasses.replace(start, snapshot=dataclasses.replace(start.snapshot, dynamic=False))
    form = forms.nearest("eager", registry.targets()[name].forms)
    assert form is not None
    there = forms.convert(fixed, form)
    there = dataclasses.replace(there, execution=Execution(target=name, batch=3))
    with pytest.raises(UserError, match="batch"):
        registry.target(name).export(there, tmp_path / "out")


def test_a_word_for_a_precision_that_torch_does_not_know(tmp_path: Path) -> None:
    start = candidate(tmp_path, precision="fp8")
    with pytest.raises(UserError, match="fp8"):
        registry.target("torch").export(start, tmp_path / "out")


def test_a_model_that_cannot_be_cast_whole_is_autocast_and_says_so(tmp_path: Path) -> None:
    class Stubborn(torch.nn.Module):
        """Its own buffer is recreated in float32, so that a plain cast of the model makes a product of two dtypes."""

        def __init__(self) -> None:
            super().__init__()
            self.inside = torch.nn.Linear(16, 16)
            self.eval()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(self.inside(x), torch.eye(16))

    start = candidate(tmp_path, Stubborn(), torch.ones(2, 16), precision="bf16")
    artefact = registry.target("torch").export(start, tmp_path / "out")
    assert artefact.execution.option("cast") == "autocast"
    assert "autocast" in artefact.snippet
    certificate = registry.target("torch").load(artefact).certify()
    assert any("autocast" in line for line in certificate.evidence)
    assert set(dict(certificate.precisions).values()) == {"bfloat16"}
    assert certificate.converted == certificate.eligible == 2
    assert "float32" in certificate.evidence[-1], "the weights themselves stay as they were"


def test_library_calls_are_read_from_what_aotinductor_writes() -> None:
    source = """
    constants_info_[0].name = "head_weight";
    constants_info_[0].dtype = cached_torch_dtype_float32;
    ERR(aoti_torch_empty_strided(2, a, b, cached_torch_dtype_bfloat16, cpu, this->device_idx_, &buf1_handle));
    ERR(aoti_torch_empty_strided(2, a, b, cached_torch_dtype_float32, cpu, this->device_idx_, &buf10_handle));
    ERR(aoti_torch_cpu_mkldnn__convolution_pointwise(buf1, frozen, nullptr, &buf2_handle));
    ERR(aoti_torch_cpu_addmm_out(buf10, wrap(reinterpret(head_weight, 2)), 1L, 1L));
    ERR(aoti_torch_cpu_bmm_out(nothing_known, other));
    ERR(aoti_torch_cpu_max_pool2d_with_indices(buf1, 2));
    """
    found = library_calls(source)
    assert [(op.name, op.kind, op.dtype) for op in found] == [
        ("_convolution_pointwise", "conv", "bfloat16"),
        ("addmm", "matmul", "float32"),
        ("bmm", "matmul", "unknown"),
    ]


@pytest.mark.slow
def test_rates_of_torch_cover_the_kinds_within_their_budget() -> None:
    rates = registry.target("torch").calibrate(1, 2.0)
    assert {r.kind for r in rates} >= {
        "conv",
        "depthwise",
        "matmul",
        "elementwise",
        "norm",
        "pool",
        "reduce",
        "softmax",
        "copy",
    }
    assert {(r.kind, r.dtype) for r in rates} >= {("matmul", "int8"), ("conv", "bfloat16"), ("conv", "float32")}
    variants = {(r.target, r.kind) for r in rates} - {("torch", r.kind) for r in rates}
    images = {("torch.channels_last", kind) for kind in ("conv", "depthwise")}
    assert variants == images | {("torch.packed", kind) for kind in ("conv", "depthwise", "matmul")}
    for rate in rates:
        assert rate.shapes >= 8
        assert len(rate.points) >= 8
        assert all(point.seconds > 0 and point.work > 0 for point in rate.points)
        assert 0 < rate.rate.low <= rate.rate.value <= rate.rate.high
        assert 0 < rate.call_s < 0.05
        assert rate.unit == ("FLOP/s" if rate.kind in ARITHMETIC else "B/s")
