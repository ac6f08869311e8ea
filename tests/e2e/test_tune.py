"""The main job as a user runs it: tune, look, load what ships without ironlaw, resume after kill -9."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SPINE = [part for name in ("threads", "runtime", "int8_static") for part in ("--include", name)]
FEW = ["--include", "runtime"]


@pytest.mark.slow
def test_tune_from_file_to_artefact_and_again(
    run_ironlaw: Run, workload_file: Path, home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run.json"
    command = ["tune", f"{workload_file}:workload", *FEW, "--time-limit", "10min", "--json", str(out)]
    done = run_ironlaw(*command)
    assert done.returncode == 0, done.stderr
    run = json.loads(out.read_text())
    schema = json.loads(resources.files("ironlaw").joinpath("schemas/run-1.json").read_text())
    jsonschema.validate(run, schema)
    tried = {lever["name"] for trial in run["trials"] for lever in trial["levers"]}
    assert "runtime" in tried
    assert [t for t in run["trials"] if t["levers"][0]["name"] == "runtime" and t["measured"]], run["account"]
    assert all(t["predicted"]["speedup"]["low"] <= t["predicted"]["speedup"]["high"] for t in run["trials"])
    total = sum(term["seconds"]["value"] for term in run["diagnosis"]["terms"])
    assert total == pytest.approx(run["diagnosis"]["total_s"], rel=0.01)
    artefact = home / "runs" / run["id"] / "artefact"
    _runs_without_ironlaw(artefact)
    html = (home / "runs" / run["id"] / "report.html").read_text()
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert run["account"][0][:40] in html
    _resume_repeats_nothing(run_ironlaw, command, home, run)


def _runs_without_ironlaw(artefact: Path) -> None:
    """The package's own script in an interpreter in which ironlaw cannot be imported."""
    manifest = json.loads((artefact / "manifest.json").read_text())
    assert set(manifest["sha256"]) >= {"run.py", "example.npz"}
    code = "import sys, runpy; sys.modules['ironlaw'] = None; sys.argv = ['run.py', 'o.npz']; runpy.run_path('run.py')"
    variables = {k: str(v) for k, v in manifest["execution"]["variables"].items()}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=artefact, capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    assert (artefact / "o.npz").exists()


def _resume_repeats_nothing(run_ironlaw: Run, command: list[str], home: Path, first: dict[str, Any]) -> None:
    """The same command again: no new fact, every trial reused, the same numbers.

    The search must have ended by itself: one that the time limit ended goes on in the next run, as it should.
    """
    assert "the search ended by nothing left" in first["account"][0]
    facts = _facts(home)
    again = run_ironlaw(*command)
    assert again.returncode == 0, again.stderr
    assert _facts(home) == facts
    second = json.loads(Path(command[-1]).read_text())
    assert [t["reused"] for t in second["trials"]] == [True] * len(second["trials"])
    assert {t["id"]: t["measured"] for t in first["trials"]} == {t["id"]: t["measured"] for t in second["trials"]}
    assert first["best"] == second["best"]


@pytest.mark.slow
def test_kill_at_any_moment_loses_at_most_the_trial_in_flight(
    run_ironlaw: Run, workload_file: Path, home: Path
) -> None:
    command = ["tune", f"{workload_file}:workload", *SPINE, "--time-limit", "120s", "--json", "-", "--quiet"]
    kept = 0
    for after_s in (4.0, 8.0, 13.0):
        process = subprocess.Popen(
            [sys.executable, "-m", "ironlaw.cli", *command],
            env={**os.environ, "IRONLAW_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = _facts(home)
        assert now >= kept
        kept = now
    done = run_ironlaw(*command)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["best"]
    with sqlite3.connect(home / "store.db") as db:
        repeated = db.execute("SELECT key FROM facts WHERE what = 'build' GROUP BY key HAVING count(*) > 1").fetchall()
    assert repeated == []
    assert not list(home.rglob("*.tmp-*")) or done.returncode == 0


@pytest.mark.slow
def test_int8_is_certified_or_refused_with_its_bound(run_ironlaw: Run, workload_file: Path) -> None:
    """Where the CPU has kernels for it every product is proven int8; where not, the refusal says what it would give."""
    done = run_ironlaw(
        "tune", f"{workload_file}:workload", "--include", "int8_static", "--time-limit", "90s", "--json", "-", "--quiet"
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    certified = [t["certificate"] for t in run["trials"] if t["certificate"]]
    refused = [r["reason"] for r in run["refused"] if r["lever"] == "int8_static"]
    slower = [t for t in run["trials"] if t["measured"] and t["measured"]["speedup"]["median"] <= 1.0]
    assert certified or slower or refused
    assert all(c["converted"] == 3 == c["eligible"] and c["proven"] for c in certified)
    assert all("x" in reason for reason in refused)


@pytest.mark.slow
def test_two_runs_share_a_store(workload_file: Path, home: Path) -> None:
    """Both finish; neither spoils the other's facts."""
    commands = [
        ["tune", f"{workload_file}:workload", "--include", lever, "--time-limit", "120s", "--json", "-", "--quiet"]
        for lever in ("runtime", "threads")
    ]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "ironlaw.cli", *command],
            env={**os.environ, "IRONLAW_HOME": str(home)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    runs = [json.loads(process.communicate(timeout=230)[0]) for process in running]
    assert {run["id"] for run in runs} == {row["id"] for row in _runs(home)}
    assert len({run["baseline"]["id"] for run in runs}) == 1


@pytest.mark.slow
def test_scalar_metric_is_bounded_by_disagreements(run_ironlaw: Run, workload_file: Path) -> None:
    done = run_ironlaw(
        "tune", f"{workload_file}:scalar", "--include", "runtime", "--time-limit", "90s", "--json", "-", "--quiet"
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    judged = [t["quality"] for t in run["trials"] if t["quality"]]
    assert judged
    assert all(q["metric"] == "accuracy" and q["high"] is not None for q in judged)
    assert all(0 < q["high"] < 0.0125 for q in judged if q["drop"] == 0)  # 3 in 300, and none seen


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    ("options", "gained"),
    [
        (["--objective", "throughput", "--include", "batch"], "throughput_per_s"),
        (["--objective", "size", "--include", "int8_static", "--max-drop", "20pt"], "size_bytes"),
        (["--objective", "memory", "--include", "runtime"], "peak_memory_bytes"),
        (["--objective", "energy", "--allow-modelled", "--include", "int8_static", "--max-drop", "20pt"], "energy_j"),
        (["--rate", "500/s", "--p99", "500ms", "--include", "runtime"], "latency_s"),
    ],
    ids=["throughput", "size", "memory", "energy", "rate"],
)
def test_every_objective_is_measured_and_won(
    run_ironlaw: Run, workload_file: Path, options: list[str], gained: str
) -> None:
    """What the objective names is better at the chosen point than at the baseline, by the run's own numbers."""
    done = run_ironlaw("tune", f"{workload_file}:workload", *options, "--time-limit", "200s", "--json", "-", "--quiet")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    schema = json.loads(resources.files("ironlaw").joinpath("schemas/run-1.json").read_text())
    jsonschema.validate(run, schema)
    best = next(t for t in (run["baseline"], *run["trials"]) if t["id"] == run["best"])
    before, after = (_number(t["measured"][gained]) for t in (run["baseline"], best))
    assert best["id"] != run["baseline"]["id"], run["account"]
    assert after > before if gained == "throughput_per_s" else after < before


def _number(measured: float | dict[str, float]) -> float:
    if isinstance(measured, dict):
        return measured["value"] if "value" in measured else measured["p50"]
    return measured


@pytest.mark.slow
def test_constraint_that_nothing_meets_exits_3_and_is_saved(run_ironlaw: Run, workload_file: Path, home: Path) -> None:
    done = run_ironlaw(
        "tune",
        f"{workload_file}:workload",
        "--include",
        "threads",
        "--max-size",
        "1kB",
        "--time-limit",
        "60s",
        "--quiet",
    )
    assert done.returncode == 3, done.stderr
    assert "No point satisfies" in done.stdout
    assert len(_runs(home)) == 1


def _facts(home: Path) -> int:
    if not (home / "store.db").exists():
        return 0
    with sqlite3.connect(home / "store.db") as db:
        (count,) = db.execute("SELECT count(*) FROM facts").fetchone()
    return int(count)


def _runs(home: Path) -> list[dict[str, str]]:
    with sqlite3.connect(home / "store.db") as db:
        return [{"id": row[0]} for row in db.execute("SELECT id FROM runs")]
