"""A round: candidates that fail leave it alone, the others are measured; the baseline's failure ends it.

The runtime is a stand-in that only the workers see: a package on their path with an entry point, as another
person's target would be.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ironlaw.measure.paired import BASELINE, SELF, Effort, Launch, round_of
from ironlaw.measure.predictor import Predictor
from ironlaw.measure.process import WorkerFailure
from ironlaw.measure.summary import floor_of, measurement, paired_gain
from ironlaw.records import Artefact, Execution, Objective, Outcome, TensorSpec, UserError

TARGET = """
import os, signal, time
import numpy as np
from ironlaw.records import Certificate

class Session:
    def __init__(self, options):
        self.options, self.calls = options, 0
        if options.get("crash_at_load"):
            os.kill(os.getpid(), signal.SIGSEGV)
    def prepare(self, arrays):
        return arrays
    def call(self, native):
        self.calls += 1
        if self.calls > self.options.get("dies_after", 1 << 60):
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.options.get("hangs"):
            time.sleep(60)
        end = time.perf_counter() + self.options.get("ms", 1) / 1e3
        while time.perf_counter() < end:
            pass
        factor = float("nan") if self.options.get("nan") else 2.0
        return [native[0] * factor]
    def fetch(self, result):
        return result
    def profile(self, native, calls):
        return ()
    def certify(self):
        return Certificate(eligible=1, converted=1, proven=True)

class StandIn:
    name, forms, needs = "stand_in", ("eager",), frozenset()
    def export(self, candidate, folder): ...
    def load(self, artefact):
        return Session(dict(artefact.execution.options))
    def calibrate(self, threads, seconds): ...
"""
QUICK = Effort(cycles=3, block_s=0.02, round_s=5.0, warm_limit_s=1.0)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    folder = tmp_path / "plugin"
    (folder / "stand_in-1.0.dist-info").mkdir(parents=True)
    (folder / "stand_in.py").write_text(TARGET)
    (folder / "stand_in-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-in\nVersion: 1.0\n")
    (folder / "stand_in-1.0.dist-info" / "entry_points.txt").write_text(
        "[ironlaw.targets]\nstand_in = stand_in:StandIn\n"
    )
    return folder


def artefact(plugin: Path, *, batch: int = 2, replicas: int = 1, **options: float | bool) -> Artefact:
    import numpy as np

    folder = plugin / f"artefact-{batch}"
    folder.mkdir(exist_ok=True)
    np.savez(folder / "example.npz", x=np.ones((batch, 3), np.float32))
    spec = TensorSpec(name="x", shape=(batch, 3), dtype="float32")
    execution = Execution(target="stand_in", batch=batch, replicas=replicas, variables=(("PYTHONPATH", str(plugin)),))
    return Artefact(
        kind="file",
        folder=str(folder),
        files=(),
        target="stand_in",
        execution=execution.with_options(**options),
        inputs=(spec,),
        outputs=(spec,),
        snippet="",
        size_bytes=1,
        example="example.npz",
    )


def run_round(
    baseline: Artefact, candidates: dict[str, Artefact], limit_s: float = 30.0
) -> dict[str, Launch | WorkerFailure]:
    return round_of(baseline, candidates, QUICK, memory_limit_bytes=None, time_limit_s=limit_s)


def test_failures_leave_the_round_to_the_others(plugin: Path) -> None:
    results = run_round(
        artefact(plugin),
        {
            "good": artefact(plugin),
            "crashes": artefact(plugin, crash_at_load=True),
            "dies later": artefact(plugin, dies_after=200, ms=0.1),
            "nan": artefact(plugin, nan=True),
        },
    )
    outcomes = {name: result.outcome for name, result in results.items() if isinstance(result, WorkerFailure)}
    assert outcomes == {"crashes": Outcome.CRASHED, "dies later": Outcome.CRASHED, "nan": Outcome.NOT_FINITE}
    for name in (BASELINE, SELF, "good"):
        assert isinstance(results[name], Launch)
    good = results["good"]
    assert isinstance(good, Launch)
    assert len(good.latency_ratios) == len(good.throughput_ratios) == len(good.quiet) == 3
    assert min(good.latencies_s) >= 0.001


def test_a_hang_is_an_outcome(plugin: Path) -> None:
    results = run_round(artefact(plugin), {"hangs": artefact(plugin, hangs=True)}, limit_s=5.0)
    failure = results["hangs"]
    assert isinstance(failure, WorkerFailure)
    assert failure.outcome == Outcome.HUNG


def test_a_baseline_that_fails_ends_the_round(plugin: Path) -> None:
    with pytest.raises(WorkerFailure, match="SIGSEGV"):
        run_round(artefact(plugin, crash_at_load=True), {})


def test_ratios_are_oriented_and_count_the_batch(plugin: Path) -> None:
    """A call of 4 ms against 1 ms, the slow one with 8 times the batch: slower a call, more examples a second."""
    results = run_round(artefact(plugin, batch=1, ms=1), {"big": artefact(plugin, batch=8, ms=4)})
    big, again = results["big"], results[SELF]
    assert isinstance(big, Launch)
    assert isinstance(again, Launch)
    assert paired_gain([big], Objective.LATENCY, floor=1.0).median < 0.5
    assert paired_gain([big], Objective.THROUGHPUT, floor=1.0).median > 1.2
    assert floor_of([again], Objective.LATENCY) >= 1.0
    measured = measurement([big], artefact(plugin, batch=8))
    assert measured.batch == 8
    assert measured.latency_s.p99 is None


def test_replicas_count_together(plugin: Path) -> None:
    results = run_round(artefact(plugin), {"two": artefact(plugin, replicas=2)})
    two, one = results["two"], results[BASELINE]
    assert isinstance(two, Launch)
    assert isinstance(one, Launch)
    assert two.peak_memory_bytes > 1.5 * one.peak_memory_bytes


def test_predict_splits_pads_and_refuses(plugin: Path) -> None:
    import numpy as np

    with Predictor(artefact(plugin, batch=2), memory_limit_bytes=None, time_limit_s=30.0) as predict:
        rows = np.arange(15, dtype=np.float32).reshape(5, 3)
        (out,) = predict([rows])
        np.testing.assert_array_equal(out, rows * 2)
        assert predict.decisions[0].tolist() == [2] * 5
        with pytest.raises(UserError, match="shape"):
            predict([np.zeros((2, 4), np.float32)])
        with pytest.raises(UserError, match="called with 2 inputs"):
            predict([rows, rows])
    with Predictor(artefact(plugin), memory_limit_bytes=None, time_limit_s=30.0) as predict:
        with pytest.raises(WorkerFailure) as caught:
            predict([np.full((2, 3), np.nan, np.float32)])
        assert caught.value.outcome == Outcome.NOT_FINITE
