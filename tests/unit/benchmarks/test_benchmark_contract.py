"""The JSON contract, the command line, and what quick runs may say."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
from pathlib import Path

import jsonschema
import pytest

import benchmarks
from benchmarks import __main__ as listing
from benchmarks import common

FOLDER = Path(benchmarks.__file__).parent
SCHEMA = json.loads((FOLDER / "result.schema.json").read_text())


def _report(*, quick: bool) -> common.Report:
    report = common.Report(name="ruler", quick=quick)
    report.arms.append({"case": "digits", "gain": 1.02, "settled": True, "why": None})
    report.goal("met", 1.0, 0.99, 1.01, at_least=0.97)
    report.goal("missed", 0.9, 0.89, 0.91, at_least=0.97)
    report.goal("unknown", None, at_most=2)
    if quick:
        report.left_out.append("most of it")
    return report


@pytest.mark.parametrize("quick", [False, True])
def test_a_report_keeps_the_contract(quick):
    data = json.loads(json.dumps(_report(quick=quick).data(), allow_nan=False))
    jsonschema.validate(data, SCHEMA)
    assert data["schema"] == "ironlaw.benchmark/1"
    assert data["environment"]["identity"]["cores"] >= 1
    assert [goal["met"] for goal in data["goals"]] == (["unsettled"] * 3 if quick else [True, False, "unsettled"])
    assert [goal["goal"] for goal in data["goals"]] == [">= 0.97", ">= 0.97", "<= 2"]


def test_the_schema_refuses_a_quick_run_that_judges_or_hides_what_it_left_out():
    data = _report(quick=True).data()
    judged = {**data, "goals": [{**data["goals"][0], "met": True}]}
    silent = {**data, "left_out": []}
    for wrong in (judged, silent, {**data, "extra": 1}, {**data, "commit": "main"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


def test_a_result_says_what_to_type_to_have_it_again():
    asked = ["--only", "digits latency", "--only", "mnist", "--time-limit", "150s", "--launches", "3", "--quick"]
    options, _ = common.parse("peers", [*asked, "--json", "x.json", "--quiet"])
    data = options.report("peers").data()
    assert data["left_out"] == ["everything but digits latency, mnist: not asked for"]
    said = data["command"]
    assert said == (
        "python -m benchmarks.peers --quick --only 'digits latency' --only mnist --time-limit 150s --launches 3"
    )
    again, _ = common.parse("peers", shlex.split(said)[3:])
    assert (again.only, again.time_limit_s, again.launches) == (options.only, 150.0, 3)


def test_a_margin_below_the_floor_is_unsettled_and_a_real_loss_is_not():
    report = common.Report(name="peers", quick=False)
    report.goal("within the floor", 0.96, 0.955, 0.965, at_least=0.97, within_floor=1.02)
    report.goal("beyond it", 0.90, 0.89, 0.91, at_least=0.97, within_floor=1.02)
    report.goal("met all the same", 0.98, 0.975, 0.99, at_least=0.97, within_floor=1.02)
    assert [goal.met for goal in report.goals] == ["unsettled", False, True]
    assert "1.020x" in report.goals[0].note


def test_results_that_are_committed_keep_the_contract():
    for path in (FOLDER / "results").glob("*.json"):
        data = json.loads(path.read_text())
        jsonschema.validate(data, SCHEMA)
        assert not data["quick"], f"{path.name}: goals are judged on full runs"


def test_every_benchmark_is_listed_with_a_line_of_its_own():
    found = listing.summaries()
    assert tuple(found) == benchmarks.NAMES
    assert len(set(found.values())) == len(found)
    assert all(len(line) > 20 for line in found.values())
    for name in benchmarks.NAMES:
        tree = ast.parse((FOLDER / f"{name}.py").read_text())
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "common.main"]
        assert [ast.literal_eval(call.args[0]) for call in calls] == [name]


def test_options_are_read(tmp_path):
    line = [
        "--quick",
        "--home",
        str(tmp_path),
        "--json",
        "-",
        "--only",
        "digits",
        "--only",
        "mnist",
        "--time-limit",
        "4min",
    ]
    options, target = common.parse("peers", line)
    assert (options.quick, options.home, target, options.time_limit_s) == (True, tmp_path, "-", 240.0)
    assert options.wants("digits")
    assert not options.wants("minilm")
    everything, _ = common.parse("peers", [])
    assert everything.wants("minilm")
    assert everything.home.is_absolute()


def test_the_commit_says_whether_the_tree_was_clean(tmp_path, monkeypatch):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    monkeypatch.setattr(common, "ROOT", tmp_path)
    assert common.commit() == "unknown"
    git("init", "-q")
    (tmp_path / "ironlaw").mkdir()
    code = tmp_path / "ironlaw" / "a.py"
    code.write_text("1\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    assert len(common.commit()) == 40
    (tmp_path / "notes.txt").write_text("not code\n")
    assert not common.commit().endswith("-dirty")
    code.write_text("2\n")
    assert common.commit().endswith("-dirty")


@pytest.mark.parametrize("target", ["-", "out/result.json"])
def test_a_run_prints_or_writes_its_result(target, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["benchmarks.ruler", "--quick", "--json", target])
    common.main("ruler", lambda options: _report(quick=options.quick))
    printed = capsys.readouterr().out
    text = printed if target == "-" else (tmp_path / target).read_text()
    jsonschema.validate(json.loads(text), SCHEMA)
    if target != "-":
        assert "unsettled" in printed
        assert "left out: most of it" in printed


def test_a_user_error_ends_with_its_exit_code(monkeypatch, capsys):
    from ironlaw.records import UserError

    def run(_: common.Options) -> common.Report:
        raise UserError("demo:minilm", "needs a package", "Install it.", exit_code=4)

    monkeypatch.setattr("sys.argv", ["benchmarks.peers"])
    with pytest.raises(SystemExit) as ended:
        common.main("peers", run)
    assert ended.value.code == 4
    assert "demo:minilm: needs a package" in capsys.readouterr().err


def test_a_run_with_fewer_launches_is_shown_and_not_judged(tmp_path):
    options = common.Options(quick=False, home=tmp_path, launches=2, time_limit_s=30.0)
    report = options.report("peers")
    report.goal("met", 1.0, 0.99, 1.01, at_least=0.97)
    assert report.goals[0].met == "unsettled"
    assert "2 launches" in report.goals[0].note
    assert "30 s" in report.notes[0]
    jsonschema.validate(report.data(), SCHEMA)
    assert common.Options(quick=False, home=tmp_path).report("peers").unjudged == ""
