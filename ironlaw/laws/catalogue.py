"""Every law by name, a calculator for each, and the page that lists them.

Why it only gathers: each family declares its laws beside their functions, so that a new law is one
edit, and this module is what the command line and the documentation read. It refuses two laws of one
name. ``python -m ironlaw.laws.catalogue`` prints the page ``docs/laws.md``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from ironlaw.laws import (
    collectives,
    deterministic,
    energy,
    intensity,
    iron_law,
    memory,
    pipeline,
    queueing,
    roofline,
    speedup,
    training_peak,
    usl,
)
from ironlaw.laws.law import Law, Result

_FAMILIES = (
    roofline,
    iron_law,
    speedup,
    usl,
    intensity,
    queueing,
    deterministic,
    collectives,
    pipeline,
    memory,
    training_peak,
    energy,
)


@cache
def laws() -> dict[str, Law]:
    """Every law by name, families together, in the order of the page."""
    found: dict[str, Law] = {}
    for module in _FAMILIES:
        for law in module.LAWS:
            assert law.name not in found, f"two laws are called {law.name}"
            found[law.name] = law
    return found


def law(name: str) -> Law:
    """The law of that name. Raises ``ValueError`` that names the nearest and lists all when it is unknown."""
    if name in laws():
        return laws()[name]
    near = difflib.get_close_matches(name, laws(), n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ValueError(f"no law is called {name!r}: {hint}the laws are {', '.join(laws())}")


def compute(name: str, inputs: Mapping[str, object]) -> dict[str, Any]:
    """One law on these inputs: ``{"law", "inputs", "result", "unit", "valid_while", "source"}``.

    ``inputs`` are numbers, lists of numbers or words by the law's own names; text is read as the
    command line gives it (``"0.95"``, ``"1,2,4"``). ``result`` is a number, or a dictionary of them.
    Raises ``ValueError`` for an unknown law, unknown, missing or invalid inputs, and values for which
    the law has no answer.
    """
    found = law(name)
    values = found.read(inputs)
    try:
        result: Result = found.function(**values)
    except ValueError as error:
        raise ValueError(f"law {name}: {error}") from None
    except ArithmeticError:
        raise ValueError(_beyond(name)) from None
    if not all(math.isfinite(number) for number in _numbers(result)):
        raise ValueError(_beyond(name))
    return {
        "law": name,
        "inputs": values,
        "result": result,
        "unit": found.unit,
        "valid_while": found.valid_while,
        "source": found.source,
    }


def listing() -> list[dict[str, str]]:
    """One row a law for a table: its name, family, title, equation, inputs and result unit."""
    return [
        {
            "law": item.name,
            "family": item.family,
            "title": item.title,
            "equation": item.equation,
            "inputs": ", ".join(i.name if i.default is None else f"[{i.name}]" for i in item.inputs),
            "unit": item.unit,
        }
        for item in laws().values()
    ]


def markdown() -> str:
    """The page that lists every law with its inputs, validity, source and a worked example."""
    lines = [
        "# Laws",
        "",
        "Generated from `ironlaw/laws/` by `python -m ironlaw.laws.catalogue > docs/laws.md`; do not edit.",
        "",
        "Each law is a pure function on plain numbers, in SI units. An FMA counts as two operations.",
    ]
    family = ""
    for item in laws().values():
        if item.family != family:
            family = item.family
            lines += ["", f"## {family[0].upper()}{family[1:]}"]
        lines += _section(item)
    return "\n".join(lines) + "\n"


def _beyond(name: str) -> str:
    return f"law {name}: the inputs are so large or small that the result cannot be represented"


def _section(item: Law) -> list[str]:
    answer = compute(item.name, dict(item.example))
    given = ", ".join(f"{name} {_show(value)}" for name, value in item.example)
    rows = [
        f"| `{i.name}` | {i.unit or '-'} | {i.meaning} | {i.valid} | {'' if i.default is None else _show(i.default)} |"
        for i in item.inputs
    ]
    return [
        "",
        f"### `{item.name}`: {item.title}",
        "",
        f"`{item.equation}`",
        "",
        "| input | unit | meaning | valid | default |",
        "|---|---|---|---|---|",
        *rows,
        "",
        f"- Result: {item.unit}",
        f"- Valid while: {item.valid_while}",
        f"- Source: {item.source}",
        f"- Example: {given} gives {_show(answer['result'])}",
    ]


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_show(number)}" for name, number in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_show(each) for each in value)
    return value if isinstance(value, str) else f"{value:.5g}"


def _numbers(result: Result) -> list[float]:
    return list(result.values()) if isinstance(result, dict) else [result]


if __name__ == "__main__":
    print(markdown(), end="")
