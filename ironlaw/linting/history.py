"""What ran before a region, in the order in which the file runs it, and whether that warmed it up."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ironlaw.linting.regions import CLOCKS, Region
from ironlaw.linting.source import Function, Scope, Source, walk
from ironlaw.linting.words import COMPILERS, LOADS, MADE, NOISE, RANDOM

PRODUCT = "@"


def work(source: Source, nodes: Iterable[ast.AST]) -> list[str]:
    """Names of what these statements do: calls, without clocks, copies and bookkeeping; ``@`` for products."""
    found = []
    for node in (inner for one in nodes for inner in walk(one)):
        if isinstance(node, ast.Call):
            name = source.called(node)
            if name not in CLOCKS and _works(name):
                found.append(name)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            found.append(PRODUCT)
    return found


def _works(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return last not in NOISE and "sync" not in last.lower() and name not in MADE and not name.startswith(RANDOM)


def loads(names: Iterable[str]) -> bool:
    """Whether all that is done is to load something: its time is that of one start, not of calls."""
    parts = [name.rsplit(".", 1)[-1] for name in names]
    return bool(parts) and all(one in LOADS or one.startswith("load_") for one in parts)


def inside(source: Source, region: Region) -> list[ast.AST]:
    """What is timed: the region, and the bodies of functions of this file that it calls."""
    return [*region.body, *source.followed(region.body)]


def before(source: Source, node: ast.AST) -> list[ast.stmt]:
    """Statements that have run when ``node`` begins, within its own scope, in order."""
    found: list[ast.stmt] = []
    for above in source.ancestors(node):
        for block in (getattr(above, name, None) for name in ("body", "orelse")):
            if isinstance(block, list) and node in block:
                found = [*block[: block.index(node)], *found]
        if isinstance(above, Scope):
            return found
        node = above
    return found


def warmed(source: Source, region: Region) -> bool:
    """Whether something that is timed was called before, or the first samples are dropped."""
    timed = set(work(source, inside(source, region)))
    if not timed or _drops_first(source, region):
        return True
    own = before(source, region.at)
    if _says_so(own) or timed & _done(source, own, region):
        return True
    sites = source.call_sites(region.scope)
    if not sites and timed <= _given(region.scope, timed):
        return True  # only callers know what was called before, and they are elsewhere
    return any(_warmed_by_caller(source, region, call, timed) for call in sites)


def _given(scope: Scope, names: Iterable[str]) -> set[str]:
    """Those names that a function gets from its callers."""
    arguments = scope.args if isinstance(scope, Function) else None
    own = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} if arguments else set()
    return {name for name in names if _root(name) in own}


def _warmed_by_caller(source: Source, region: Region, call: ast.Call, timed: set[str]) -> bool:
    assert isinstance(region.scope, Function)
    earlier = before(source, _statement(source, call))
    given = {_root(name): _passed(source, call, region.scope, _root(name)) for name in timed}
    names = {given.get(_root(name)) or name for name in timed}
    again = any(isinstance(one, ast.Expr) and one.value in source.call_sites(region.scope) for one in earlier)
    return again or _says_so(earlier) or bool(names & _done(source, earlier, region))


def _root(name: str) -> str:
    return name.split(".")[0]


def _passed(source: Source, call: ast.Call, function: Function, parameter: str) -> str:
    """The name of what a caller passes for a parameter, or of what a lambda calls."""
    given = source.argument(call, function, parameter)
    if isinstance(given, ast.Lambda):
        return next(iter(work(source, [given.body])), "")
    return source.name_of(given) if given is not None else ""


def _statement(source: Source, node: ast.AST) -> ast.AST:
    """The statement that an expression stands in."""
    return next((one for one in source.ancestors(node) if isinstance(one, ast.stmt)), node)


def _done(source: Source, statements: list[ast.stmt], region: Region) -> set[str]:
    """What these statements called, counted from the last compilation of each name on."""
    done: set[str] = set()
    for statement in statements:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        done |= set(work(source, [statement, *source.followed([statement])]))
        done -= compiled_by(source, statement)
    return done


def compiled_by(source: Source, statement: ast.AST) -> set[str]:
    """Names that this statement binds to something compiled."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return set()
    if source.called(statement.value) not in COMPILERS:
        return set()
    return {one.id for one in statement.targets if isinstance(one, ast.Name)}


def _says_so(statements: Iterable[ast.stmt]) -> bool:
    """Whether a loop or a call is named a warm-up."""
    nodes = (node for one in statements if not isinstance(one, ast.FunctionDef | ast.ClassDef) for node in walk(one))
    named = (node for node in nodes if isinstance(node, ast.Call | ast.For | ast.While))
    return any("warm" in ast.unparse(_head(node)).lower() for node in named)


def _head(node: ast.AST) -> ast.AST:
    if isinstance(node, ast.Call):
        return node.func
    return node.iter if isinstance(node, ast.For) else getattr(node, "test", node)


def _drops_first(source: Source, region: Region) -> bool:
    """Whether samples are cut from the front, or the loop's first turns are told apart."""
    loops = [one for one in source.loops(region.at) if isinstance(one, ast.For)]
    if loops and any(_tests(node, loops[0]) for one in loops[0].body for node in walk(one)):
        return True
    if not loops and region.number == 1 and not source.call_sites(region.scope):
        return False
    return any(_cut(node) for node in ast.walk(source.tree))


def _tests(node: ast.AST, loop: ast.For) -> bool:
    """An ``if`` on the loop's counter."""
    counters = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    return isinstance(node, ast.If) and any(
        isinstance(one, ast.Name) and one.id in counters for one in ast.walk(node.test)
    )


def _cut(node: ast.AST) -> bool:
    """``times[5:]``, ``del times[0]``, ``times.pop(0)``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        lower = node.slice.lower
        return isinstance(node.ctx, ast.Load) and lower is not None and node.slice.upper is None and _is_list(node)
    if isinstance(node, ast.Delete):
        return any(isinstance(one, ast.Subscript) for one in node.targets)
    first = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pop"
    return first and len(getattr(node, "args", [])) == 1


def _is_list(node: ast.Subscript) -> bool:
    """A variable that sounds like samples, not an input or the command line."""
    name = ast.unparse(node.value).lower()
    return any(word in name for word in ("time", "sample", "latenc", "duration", "elapsed", "measure", "result"))
