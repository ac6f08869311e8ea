"""How often a region is timed, and whether more than a mean is kept of it."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from ironlaw.linting.history import work
from ironlaw.linting.regions import BENCHMARK, Region
from ironlaw.linting.rules import Mistake, mistake
from ironlaw.linting.source import Loop, Source, walk
from ironlaw.linting.words import MEAN, SPREAD

ENOUGH = 10


def counts(source: Source, region: Region) -> Iterator[Mistake]:
    """``few-samples``, else ``mean-only``."""
    if region.clock == BENCHMARK or not work(source, region.body):
        return
    inner, outer = _inner(source, region), _outer(source, region)
    total = None if inner is None or outer is None else inner * outer
    if total is not None and total < ENOUGH:
        how = "once" if total == 1 else f"{total} times"
        yield mistake("few-samples", region.line, f"what is timed here runs {how}")
    elif outer == 1 and inner != 1 and not _keeps_spread(source):
        over = f"{inner:,}" if inner else "several"
        yield mistake("mean-only", region.line, f"one reading of the clock for {over} calls: only their mean is known")
    elif outer != 1 and not _keeps_spread(source) and (line := _mean_line(source)):
        yield mistake("mean-only", line, "of all samples only the mean is told")


def _inner(source: Source, region: Region) -> int | None:
    """Repetitions between two reads of the clock; None when the file does not say how many."""
    if region.by_timeit:
        return region.number
    loops = [node for one in region.body for node in walk(one) if isinstance(node, Loop | ast.ListComp)]
    working = [loop for loop in loops if work(source, [loop])]
    if not working:
        return 1
    numbers = [source.count(loop) for loop in working]
    return None if any(one is None for one in numbers) else max(one for one in numbers if one is not None)


def _outer(source: Source, region: Region) -> int | None:
    """How often the region itself is timed; None when the file does not say."""
    if region.clock == "timeit.repeat":
        return None
    own = _product([source.count(loop) for loop in source.loops(region.at)])
    sites = source.call_sites(region.scope)
    if isinstance(region.scope, ast.Module):
        return own
    if not sites:
        return None if own == 1 else own
    by_site = [_product([source.count(loop) for loop in source.loops(call)]) for call in sites]
    return None if own is None or any(one is None for one in by_site) else own * max(one or 1 for one in by_site)


def _product(numbers: list[int | None]) -> int | None:
    return None if any(one is None for one in numbers) else math.prod(one for one in numbers if one is not None)


def _keeps_spread(source: Source) -> bool:
    """Whether the file computes or writes anything of its samples beside a mean."""
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    return any(source.called(call).rsplit(".", 1)[-1] in SPREAD for call in calls)


def _mean_line(source: Source) -> int | None:
    """The line that takes a mean: by name, as sum over length, or by adding readings up."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.called(node).rsplit(".", 1)[-1] in MEAN:
            return node.lineno
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_call(source, node.left, "sum"):
            return node.lineno
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and _is_reading(node.value):
            return node.lineno
    return None


def _is_call(source: Source, node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and source.called(node) == name


def _is_reading(value: ast.expr) -> bool:
    """A difference of clock reads, or a name that says so."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Sub) and any(isinstance(one, ast.Call) for one in ast.walk(value))
    return isinstance(value, ast.Name) and value.id in ("elapsed", "dt", "duration", "latency", "took")
