"""Writes what is generated in docs/: a page a lever from its declarations, the command line's help, and the goals of
the benchmarks as they were measured.

``python docs/generate.py`` writes; ``--check`` exits 1 and names what is not current (a test runs it).
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ironlaw import registry
from ironlaw.cli import app
from ironlaw.contracts import Lever

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
COMMANDS = (
    "machine", "diagnose", "tune", "compare", "deploy", "report", "runs", "predictions", "levers", "laws", "lint",
    "validate",
)  # fmt: skip

BAR = r"\|"
"""A bar that ends no cell of a table."""
RESULTS_HEAD = """# Results

Generated from [benchmarks/results/](../benchmarks/results), whose files hold every arm; what each goal means is in
[benchmarks.md](benchmarks.md). A goal that is missed, or that could not be told, stays as it is.
"""


def lever_page(lever: Lever) -> str:
    """One lever: what it does, declares, and may be set to."""
    module = inspect.getmodule(type(lever))
    about = inspect.getdoc(module) or ""
    fields = dataclasses.fields(lever.Settings)
    settings = [f"| `{f.name}` | `{f.type}` | {_default(f.default)} |" for f in fields]
    table = (
        ["", "| setting | type | default |", "|---|---|---|", *settings] if settings else ["", "It has no settings."]
    )
    facts = {
        "axis": str(lever.axis),
        "attacks": ", ".join(sorted(map(str, lever.attacks))) or "nothing timed",
        "kinds of workload": ", ".join(sorted(map(str, lever.kinds))),
        "changes": ", ".join(f"`{c}`" for c in sorted(lever.claims)),
        "forms": f"{' or '.join(sorted(lever.consumes)) or 'any'} -> {lever.produces or 'the same'}",
        "needs": ", ".join(f"`{n}`" for n in sorted(lever.needs)) or "nothing",
        "source": lever.cites or "none",
        "version": str(lever.version),
    }
    rows = [f"| {name} | {value} |" for name, value in facts.items()]
    return "\n".join([f"# {lever.name}", "", about, "", "| | |", "|---|---|", *rows, *table, ""])


def _default(value: object) -> str:
    return "chosen for the workload" if value is dataclasses.MISSING else f"`{value!r}`"


def lever_index(levers: dict[str, Lever]) -> str:
    """The list of levers in D·A·M order."""
    lines = ["# Levers", "", "Generated from their declarations; `ironlaw levers` prints the same.", ""]
    lines += ["| lever | axis | attacks | changes |", "|---|---|---|---|"]
    for name, lever in levers.items():
        attacks, claims = (", ".join(sorted(map(str, facts))) for facts in (lever.attacks, lever.claims))
        lines.append(f"| [{name}]({name}.md) | {lever.axis} | {attacks} | {claims} |")
    return "\n".join([*lines, ""])


def command_page() -> str:
    """The help of every command."""
    runner = CliRunner()
    parts = ["# The command line", "", "Generated from `--help`."]
    for command in ((), *((name,) for name in COMMANDS)):
        text = runner.invoke(app, [*command, "--help"], prog_name="ironlaw", env={"COLUMNS": "100"}).output
        lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
        parts += ["", f"## ironlaw {' '.join(command)}".rstrip(), "", "```text", lines, "```"]
    return "\n".join([*parts, ""])


def results_page() -> str:
    """The goals of every committed result, with the command, the commit and the machine that they are of."""
    parts = [RESULTS_HEAD]
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text())
        host = found["environment"]["identity"]
        isa = " ".join(name for name in host["isa"] if name.startswith(("avx", "amx", "asimd", "sve")))
        versions = ", ".join(f"{name} {version}" for name, version in host["versions"].items())
        where = f"{host['cores']} cores of {host['cpu']} ({isa}), Python {host['python']}, {versions}"
        parts += [f"## {path.stem}", "", f"    {found['command']}", "", f"At {found['commit'][:12]}, on {where}.", ""]
        parts += [
            "| goal | value | 95 % | limit | met | |",
            "|---|---|---|---|---|---|",
            *map(_goal_row, found["goals"]),
        ]
        left_out = [f"left out: {what}" for what in found["left_out"]]
        parts += ["", *(f"- {line}" for line in [*found["notes"], *left_out]), ""]
    return "\n".join(parts)


def _goal_row(goal: dict[str, Any]) -> str:
    low, value, high = (_figure(goal[name]) for name in ("low", "value", "high"))
    met = {True: "yes", False: "**no**"}.get(goal["met"], goal["met"])
    cells = [goal["name"], value, f"{low} to {high}" if low else "", goal["goal"], met, goal["note"]]
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def pages() -> dict[Path, str]:
    """Every generated file with its text."""
    levers = registry.levers()
    found = {HERE / "levers" / f"{name}.md": lever_page(lever) for name, lever in levers.items()}
    found[HERE / "levers" / "README.md"] = lever_index(levers)
    found[HERE / "cli.md"] = command_page()
    found[HERE / "results.md"] = results_page()
    return found


def main() -> int:
    """Write the pages, or check that they are current."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(HERE.parent)} is not current: run python docs/generate.py")
        return 1 if stale else 0
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
