"""``ironlaw lint``: exit codes, text to jump from, JSON, and the example of the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from ironlaw import api
from ironlaw.cli import app

CORPUS = Path(__file__).parent / "corpus"
PAGE = Path(__file__).parents[3] / "docs" / "lint.md"


def lint(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["lint", *arguments])
    return done.exit_code, done.output


def test_exit_codes() -> None:
    assert lint(str(CORPUS / "clean_gpu.py"))[0] == 0
    assert lint(str(CORPUS / "sick_gpu.py"))[0] == 1
    code, said = lint(str(CORPUS / "missing.py"))
    assert code == 2
    assert "cannot be read" in said
    assert "Traceback" not in said


def test_lines_to_jump_to() -> None:
    path = str(CORPUS / "sick_timeit.py")
    _, said = lint(path)
    assert f"{path}:14: few-samples: what is timed here runs 3 times" in said
    assert said.strip().endswith("3 timing mistakes")
    assert "no timing mistake found" in lint(str(CORPUS / "clean_timeit.py"))[1]


def test_json_has_a_schema_and_both_places_to_go(tmp_path: Path) -> None:
    path = str(CORPUS / "sick_first_call.py")
    code, said = lint(path, "--json", "-")
    assert code == 1
    data = json.loads(said)
    assert data["schema"] == "ironlaw.lint/1"
    assert data["file"] == path
    assert {one["rule"] for one in data["mistakes"]} >= {"wall-clock", "no-warm-up"}
    assert set(data["mistakes"][0]) == {"rule", "line", "message", "why", "instead"}
    code, said = lint(path, "--json", str(tmp_path / "lint.json"))
    assert json.loads((tmp_path / "lint.json").read_text()) == data
    assert "wall-clock" in said


def test_the_same_from_python() -> None:
    found = api.lint(CORPUS / "sick_function.py")
    assert [one.rule for one in found] == ["data-inside", "no-warm-up", "few-samples"]


def test_the_documented_example_says_what_is_documented(tmp_path: Path) -> None:
    text = PAGE.read_text()
    script, better = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]
    (tmp_path / "bench.py").write_text(script)
    shown = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert shown
    _, said = lint(str(tmp_path / "bench.py"))
    assert said.replace(str(tmp_path / "bench.py"), "bench.py") == shown.group(1)
    (tmp_path / "better.py").write_text(better)
    assert lint(str(tmp_path / "better.py"))[0] == 0


def test_the_page_lists_every_rule() -> None:
    from ironlaw.linting import RULES

    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*?) \|$", PAGE.read_text(), re.MULTILINE))
    assert list(rows) == list(RULES)
