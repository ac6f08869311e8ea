"""What lies inside a timed region and should not: copies, data, printing, compilation; and a missing wait."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from ironlaw.linting.history import before, compiled_by, inside, warmed, work
from ironlaw.linting.regions import BENCHMARK, EVENT, WALL, Region
from ironlaw.linting.rules import Mistake, mistake
from ironlaw.linting.source import Source, walk
from ironlaw.linting.words import COMPILERS, COPIES, FILLED, LOGS, MADE, MADE_BY, PRINTS, READERS, RUNTIME_WAITS, WAITS

_DTYPE = re.compile(r"^torch\.(float|double|half|bfloat|int|long|bool|uint|channels|contiguous)")
_LOG = re.compile(r"^(logging|_?logger|log|wandb|tqdm\.tqdm)$", re.IGNORECASE)


def clock(source: Source, region: Region) -> Iterator[Mistake]:
    """``wall-clock``."""
    if region.clock in WALL:
        yield mistake("wall-clock", region.line, f"{region.clock}() measures the time of day, not a duration")


def warm_up(source: Source, region: Region) -> Iterator[Mistake]:
    """``compile-inside`` where a compiler works in the region, else ``no-warm-up``."""
    if region.clock == BENCHMARK:
        return
    direct = [call for call in source.calls(region.body) if source.called(call) in COMPILERS]
    for call in direct:
        yield mistake("compile-inside", call.lineno, f"{source.called(call)} is called while the clock runs")
    if direct or _many_for_few(region) or warmed(source, region):
        return
    first = work(source, region.body)[0]
    compiled = _compiled_names(source, region)
    late = next((name for name in work(source, region.body) if name.split(".")[0] in compiled), None)
    if late is not None:
        yield mistake("compile-inside", region.line, f"{late} was compiled and never called before the clock starts")
    else:
        yield mistake("no-warm-up", region.line, f"the first call of {_word(first)} is timed")


def _many_for_few(region: Region) -> bool:
    """timeit with so many repetitions that a slow first one does not show, or with the best of several."""
    return region.clock == "timeit.repeat" or (region.by_timeit and (region.number or 0) >= 1000)


def _compiled_names(source: Source, region: Region) -> set[str]:
    bound = [name for node in ast.walk(source.tree) for name in compiled_by(source, node)]
    decorated = [
        function.name
        for function in source.functions.values()
        for one in function.decorator_list
        if source.name_of(one.func if isinstance(one, ast.Call) else one) in COMPILERS
    ]
    return {*bound, *decorated}


def contents(source: Source, region: Region) -> Iterator[Mistake]:
    """``copy-inside``, ``data-inside``, ``printing-inside``: in the region and in functions that it calls."""
    calls = list(source.calls(inside(source, region)))
    own = set(map(id, source.calls(region.body)))
    for call in calls:
        name = source.called(call)
        if _prints(name):
            yield mistake("printing-inside", call.lineno, f"{name}() while the clock runs")
        if not work(source, region.body):
            continue  # the copy, or the making of data, is what is timed here
        if _copies(source, call):
            yield mistake("copy-inside", call.lineno, f"{ast.unparse(call)[:60]} while the clock runs")
        elif _makes(name) or (id(call) in own and name in FILLED):
            yield mistake("data-inside", call.lineno, f"{_word(name)} while the clock runs")
    yield from _loaders(source, region)


def _prints(name: str) -> bool:
    owner, _, last = name.rpartition(".")
    return name in PRINTS or (bool(_LOG.match(owner)) and last in {*LOGS, "write"})


def _copies(source: Source, call: ast.Call) -> bool:
    """A move to a device; a cast of the type alone is none."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in COPIES:
        return False
    arguments = [*call.args, *(one.value for one in call.keywords)]
    return call.func.attr != "to" or not arguments or not all(_is_dtype(source, one) for one in arguments)


def _is_dtype(source: Source, node: ast.expr) -> bool:
    name = source.name_of(node)
    return bool(_DTYPE.match(name)) or "dtype" in name or (isinstance(node, ast.Constant) and type(node.value) is bool)


def _makes(name: str) -> bool:
    return name in MADE or name.startswith(MADE_BY) or name.rsplit(".", 1)[-1] in READERS


def _loaders(source: Source, region: Region) -> Iterator[Mistake]:
    """A loop over a loader inside: reading, decoding and collating are timed too."""
    for node in (inner for one in region.body for inner in walk(one)):
        if isinstance(node, ast.For) and re.search(r"loader|dataset", ast.unparse(node.iter), re.IGNORECASE):
            yield mistake(
                "data-inside", node.lineno, f"batches come from {ast.unparse(node.iter)} while the clock runs"
            )


# ---------------------------------------------------------------- accelerators


def synchronisation(source: Source, region: Region) -> Iterator[Mistake]:
    """``no-synchronisation``, at the end of the region or at its start."""
    if region.clock in (EVENT, BENCHMARK) or not work(source, region.body):
        return
    device = _device(source)
    if device is None:
        return
    if not _waits(source, inside(source, region)):
        yield mistake("no-synchronisation", region.line, f"{device} is used, and nothing waits for it before the end")
        return
    earlier = before(source, region.at)
    callers = [one for call in source.call_sites(region.scope) for one in before(source, _anchor(source, call))]
    if device != "jax" and not source.loops(region.at) and not _waits(source, [*earlier, *callers]):
        text = f"{device} is used, and work from before may still run when the clock starts"
        yield mistake("no-synchronisation", region.line, text)


def _anchor(source: Source, call: ast.Call) -> ast.AST:
    return next((one for one in source.ancestors(call) if isinstance(one, ast.stmt)), call)


def _device(source: Source) -> str | None:
    """The accelerator that the file asks for; a mere comparison is no request."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cuda", "mps"):
            return node.func.attr
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.split(":")[0]
            if name in ("cuda", "mps", "xpu") and not isinstance(source.parents.get(node), ast.Compare):
                return name
    return "jax" if "jax" in source.imported else None


def _waits(source: Source, nodes: Iterable[ast.AST]) -> bool:
    statements = list(nodes)
    known = WAITS | RUNTIME_WAITS if "onnxruntime" in source.imported else WAITS
    for call in source.calls([*statements, *source.followed(statements)]):
        last = source.called(call).rsplit(".", 1)[-1]
        if "sync" in last.lower() or last in known:
            return True
    return False


def _word(name: str) -> str:
    return "the product" if name == "@" else f"{name.replace('?', '...')}()"
