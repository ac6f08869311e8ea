"""What a script times: statements between two reads of a clock, under a timer, or given to timeit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ironlaw.linting.source import Function, Scope, Source, walk

MONOTONIC = frozenset(
    {
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.process_time",
        "time.process_time_ns",
        "time.thread_time",
        "timeit.default_timer",
    }
)
WALL = frozenset({"time.time", "time.time_ns", "datetime.datetime.now", "datetime.datetime.utcnow"})
CLOCKS = MONOTONIC | WALL
EVENT = "torch.cuda.Event"
BENCHMARK = "torch.utils.benchmark.Timer"
_TIMER = re.compile(r"timer|stopwatch|timeit|time_it|timed|measure_time|elapsed", re.IGNORECASE)
_METHODS = ("timeit", "repeat", "autorange")
_DEFAULT_NUMBER = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """One timed region. ``at`` is the statement or call that begins it; ``number`` is timeit's own repetition.

    ``clock`` is the dotted name of the clock, of the timer, or of the timeit function.
    """

    clock: str
    at: ast.AST
    body: tuple[ast.AST, ...]
    scope: Scope
    number: int | None = 1

    @property
    def line(self) -> int:
        return int(getattr(self.at, "lineno", 1))

    @property
    def by_timeit(self) -> bool:
        return self.clock.startswith("timeit.") and self.clock not in CLOCKS


def regions(source: Source) -> list[Region]:
    """Every innermost timed region, in the order of the file: a total around others is no measurement of its own."""
    found = [*_between_reads(source), *_under_timers(source), *_by_timeit(source)]
    found = list({id(one.at): one for one in reversed(found)}.values())  # the first end of each start
    starts = {id(one.at) for one in found}
    inner = [one for one in found if not any(id(node) in starts for part in one.body for node in walk(part))]
    return sorted(inner, key=lambda one: one.line)


# ---------------------------------------------------------------- between two reads


def _between_reads(source: Source) -> Iterator[Region]:
    for scope in _scopes(source):
        differences = set(_differences(scope))
        for block in _blocks(scope):
            yield from _in_block(source, scope, _flat(block), differences)


def _in_block(
    source: Source, scope: Scope, statements: list[ast.stmt], differences: set[tuple[str, str]]
) -> Iterator[Region]:
    open_: dict[str, tuple[int, str]] = {}
    for position, statement in enumerate(statements):
        ended = [start for start in _ended_by(source, statement, differences) if start in open_]
        for start in ended:
            begun, clock = open_[start]
            body = _covering(source, statements[begun + 1 : position])
            if body:
                yield Region(clock=clock, at=statements[begun], body=body, scope=scope)
        read = _read(source, statement)
        if read is not None:
            open_[read[0]] = (position, read[1])


def _read(source: Source, statement: ast.stmt) -> tuple[str, str] | None:
    """The name and the clock, where a statement stores a read of one or records an event."""
    if isinstance(statement, ast.Assign):
        clock, name = _clock(source, statement.value), _key(statement.targets[0])
        return (name, clock) if clock and name else None
    event = _recorded(statement)
    return (event, EVENT) if event else None


def _clock(source: Source, value: ast.expr) -> str:
    name = source.called(value) if isinstance(value, ast.Call) else ""
    return name if name in CLOCKS else ""


def _recorded(statement: ast.stmt) -> str:
    """The name of an event that this statement records."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "record":
        return ""
    return _key(call.func.value)


def _key(node: ast.expr) -> str:
    """A variable as text: a name or an attribute of one."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _ended_by(source: Source, statement: ast.stmt, differences: set[tuple[str, str]]) -> list[str]:
    """Names of starts whose region ends with this statement."""
    if isinstance(statement, Function | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try):
        return []
    direct = [
        _key(node.right)
        for node in walk(statement)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
        if any(_clock(source, one) for one in ast.walk(node.left) if isinstance(one, ast.expr))
    ]
    read = _read(source, statement)
    return direct + [start for start, end in differences if read is not None and end == read[0]]


def _differences(scope: Scope) -> Iterator[tuple[str, str]]:
    """Pairs (start, end) of names that are subtracted, or asked for the time between two events."""
    for node in _own(scope):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            yield _key(node.right), _key(node.left)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "elapsed_time":
            yield _key(node.func.value), _key(node.args[0]) if node.args else ""


def _flat(block: list[ast.stmt]) -> list[ast.stmt]:
    """Statements in order, those under ``with`` and ``try`` after their header."""
    found: list[ast.stmt] = []
    for statement in block:
        found.append(statement)
        if isinstance(statement, ast.With | ast.AsyncWith | ast.Try):
            found += _flat(statement.body)
    return found


def _covering(source: Source, statements: list[ast.stmt]) -> tuple[ast.AST, ...]:
    """The statements without those that lie inside another of them; a ``with`` that goes on stands for its items."""
    chosen = set(map(id, statements))
    found: list[ast.AST] = []
    for one in statements:
        if any(id(above) in chosen and _whole(above, chosen) for above in source.ancestors(one)):
            continue
        found += [one] if _whole(one, chosen) else _items(one)
    return tuple(found)


def _whole(statement: ast.AST, chosen: set[int]) -> bool:
    """Whether everything under a block lies in the region too."""
    blocks = isinstance(statement, ast.With | ast.AsyncWith | ast.Try)
    return not blocks or all(id(one) in chosen for one in _flat(getattr(statement, "body", [])))


def _items(statement: ast.AST) -> list[ast.AST]:
    return [one.context_expr for one in getattr(statement, "items", [])]


# ---------------------------------------------------------------- timers and timeit


def _under_timers(source: Source) -> Iterator[Region]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.With | ast.AsyncWith):
            continue
        names = [source.called(one.context_expr) for one in node.items if isinstance(one.context_expr, ast.Call)]
        timer = next((name for name in names if _TIMER.search(name.rsplit(".", 1)[-1])), None)
        if timer is not None:
            yield Region(clock=timer, at=node, body=tuple(node.body), scope=source.scope(node))


def _by_timeit(source: Source) -> Iterator[Region]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = source.called(node)
        if name in ("timeit.timeit", "timeit.repeat", BENCHMARK):
            yield from _timeit_region(source, node, node, name)
        elif (timer := _timer_of(source, node)) is not None:
            yield from _timeit_region(source, node, timer, f"timeit.{name.rsplit('.', 1)[-1]}")


def _timer_of(source: Source, call: ast.Call) -> ast.Call | None:
    """The ``timeit.Timer(...)`` of which a method is called here."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS else None
    return inner if isinstance(inner, ast.Call) and source.called(inner) == "timeit.Timer" else None


def _timeit_region(source: Source, call: ast.Call, made: ast.Call, clock: str) -> Iterator[Region]:
    keywords = {one.arg: one.value for one in (*made.keywords, *call.keywords)}
    statement = keywords.get("stmt", made.args[0] if made.args else None)
    body = _statement(source, statement, call)
    if not body:
        return
    scope = source.scope(call)
    position = {"timeit": 0, "repeat": 1}.get(clock.rsplit(".", 1)[-1], 9) + (3 if call is made else 0)
    given = keywords.get("number") or (call.args[position] if position < len(call.args) else None)
    number = source.number(given, scope) if given is not None else _DEFAULT_NUMBER
    yield Region(clock=clock, at=call, body=body, scope=scope, number=number)


def _statement(source: Source, given: ast.expr | None, call: ast.Call) -> tuple[ast.AST, ...]:
    """What timeit runs: a lambda's body, a function's, or code in a string (at the line of the call)."""
    if isinstance(given, ast.Lambda):
        return (given.body,)
    if isinstance(given, ast.Name):
        return tuple(source.functions[given.id].body) if given.id in source.functions else ()
    if not isinstance(given, ast.Constant) or not isinstance(given.value, str):
        return ()
    try:
        parsed = ast.parse(given.value).body
    except SyntaxError:
        return ()  # a template that is filled at run time: what it holds is not known here
    for node in (inner for one in parsed for inner in ast.walk(one)):
        if hasattr(node, "lineno"):
            node.lineno = call.lineno
    return tuple(parsed)


# ---------------------------------------------------------------- places


def _scopes(source: Source) -> Iterator[Scope]:
    yield from (node for node in ast.walk(source.tree) if isinstance(node, Scope))


def _own(scope: Scope) -> Iterator[ast.AST]:
    """Nodes of a scope without those of functions defined in it."""
    for statement in scope.body:
        yield from walk(statement)


def _blocks(scope: Scope) -> Iterator[list[ast.stmt]]:
    """Lists of statements that run one after the other."""
    yield scope.body
    for node in _own(scope):
        yield from _bodies(node)


def _bodies(node: ast.AST) -> Iterable[list[ast.stmt]]:
    if isinstance(node, Function | ast.ClassDef):
        return []
    found = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    return [one for one in found if isinstance(one, list)]
