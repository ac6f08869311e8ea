"""Lists the benchmarks, a line each."""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks import NAMES


def summaries() -> dict[str, str]:
    """The first line of each benchmark's docstring, read without importing it."""
    found = {}
    for name in NAMES:
        source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        found[name] = (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
    return found


def main() -> None:
    print("python -m benchmarks.NAME [--quick] [--json FILE] [--home FOLDER] [--only CASE]\n")
    for name, line in summaries().items():
        print(f"  {name:<11} {line}")


if __name__ == "__main__":
    main()
