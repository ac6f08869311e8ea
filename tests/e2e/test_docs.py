"""What is written is true: generated pages are current, the README's model tunes, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "page", sorted(str(p.relative_to(ROOT)) for p in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), f"{page} links to {target}"


def test_every_command_in_the_docs_exists() -> None:
    from ironlaw.cli import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    text = README + "".join(p.read_text() for p in ROOT.glob("docs/*.md"))
    used = set(re.findall(r"^    ironlaw ([a-z]+)", text, re.MULTILINE)) - {"tune"}
    assert used <= known
    assert "compare" in used


def test_readme_has_exactly_two_set_up_commands() -> None:
    block = README.split("## Two commands")[1].split("##")[0]
    assert re.findall(r"^    (make \w+)", block, re.MULTILINE) == ["make tune", "make test"]


@pytest.mark.slow
def test_the_readmes_model_tunes(run_ironlaw: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    code = re.search(r"```python\n(# my_model.py.*?)```", README, re.DOTALL)
    assert code
    path = tmp_path / "my_model.py"
    path.write_text(code.group(1))
    done = run_ironlaw("tune", f"{path}:workload", "--include", "runtime", "--time-limit", "60s", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "frontier" in done.stdout
