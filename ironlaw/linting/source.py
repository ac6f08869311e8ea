"""A parsed script: what its names mean, its functions, its constants, and where each statement stands."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One file. Names are given as they are imported: ``np.load`` is ``numpy.load``."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.functions = {node.name: node for node in ast.walk(self.tree) if isinstance(node, Function)}
        self.classes = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)}
        self.aliases: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.imported: set[str] = set()
        for node in ast.walk(self.tree):
            self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for one in node.names:
                self.imported.add(one.name.split(".")[0])
                self.aliases[one.asname or one.name.split(".")[0]] = one.name if one.asname else one.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module:
            self.imported.add(node.module.split(".")[0])
            for one in node.names:
                self.aliases[one.asname or one.name] = f"{node.module}.{one.name}"
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self._learn_value(node.targets[0].id, node.value)

    def _learn_value(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Constant) and type(value.value) is int:
            self.numbers[name] = value.value
        elif isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id in self.aliases:
            self.aliases[name] = f"{self.aliases[value.value.id]}.{value.attr}"

    # ------------------------------------------------------------ names

    def name_of(self, node: ast.AST) -> str:
        """The dotted name of an expression; what is not a name in front is a question mark: ``?.cuda``."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.name_of(node.value)}.{node.attr}"
        return "?"

    def called(self, call: ast.Call) -> str:
        return self.name_of(call.func)

    def calls(self, nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
        """Calls in these statements, loops and lambdas included, definitions left out."""
        for node in nodes:
            for inner in walk(node):
                if isinstance(inner, ast.Call):
                    yield inner

    def followed(self, nodes: Iterable[ast.AST]) -> list[ast.stmt]:
        """Bodies of the file's own functions that these statements call directly."""
        names = dict.fromkeys(call.func.id for call in self.calls(nodes) if isinstance(call.func, ast.Name))
        return [statement for name in names if name in self.functions for statement in self.functions[name].body]

    # ------------------------------------------------------------ places

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around it, the innermost first."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def scope(self, node: ast.AST) -> Scope:
        """The function that it stands in, or the module."""
        return next(one for one in self.ancestors(node) if isinstance(one, Scope))

    def loops(self, node: ast.AST) -> list[ast.AST]:
        """Loops and comprehensions around it within its own function, the innermost first."""
        found: list[ast.AST] = []
        for one in self.ancestors(node):
            if isinstance(one, Scope):
                break
            if isinstance(one, Loop | ast.ListComp | ast.GeneratorExp):
                found.append(one)
        return found

    def call_sites(self, function: Scope) -> list[ast.Call]:
        """Where the file calls one of its own functions."""
        if isinstance(function, ast.Module):
            return []
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return [one for one in calls if isinstance(one.func, ast.Name) and one.func.id == function.name]

    # ------------------------------------------------------------ counts

    def count(self, loop: ast.AST) -> int | None:
        """How often a loop or comprehension runs; None when the file does not say (0 stands for *not given*)."""
        over = loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else None
        if isinstance(loop, ast.ListComp | ast.GeneratorExp):
            over = loop.generators[0].iter
        return (self._length(over, self.scope(loop)) or None) if over is not None else None

    def _length(self, over: ast.expr, scope: Scope) -> int | None:
        if isinstance(over, ast.List | ast.Tuple):
            return len(over.elts)
        if not isinstance(over, ast.Call) or not over.args:
            return None
        name = self.called(over).rsplit(".", 1)[-1]
        if name in ("tqdm", "enumerate", "trange"):
            return self._length(over.args[0], scope) if name != "trange" else self.number(over.args[0], scope)
        if name != "range":
            return None
        bounds = [self.number(one, scope) for one in over.args]
        if any(one is None for one in bounds):
            return None
        return len(range(*(one for one in bounds if one is not None)))

    def number(self, node: ast.expr | None, scope: Scope) -> int | None:
        """A whole number that is written there, assigned once by name, or the default of a parameter."""
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if not isinstance(node, ast.Name):
            return None
        if isinstance(scope, Function) and (given := self._given(node.id, scope)) is not None:
            return given
        return self.numbers.get(node.id)

    def _given(self, name: str, function: Function) -> int | None:
        """What callers pass for a parameter (the most), else its default."""
        values = [self.argument(call, function, name) for call in self.call_sites(function)]
        passed = [self.number(one, self.tree) for one in values if one is not None]
        if passed:
            return None if any(one is None for one in passed) else max(one for one in passed if one is not None)
        positional = [*function.args.posonlyargs, *function.args.args]
        defaults = dict(zip([one.arg for one in positional][::-1], function.args.defaults[::-1], strict=False))
        keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        defaults |= {one.arg: value for one, value in keywords if value is not None}
        return self.number(defaults.get(name), self.tree)

    def argument(self, call: ast.Call, function: Function, name: str) -> ast.expr | None:
        """What a call passes for a parameter; None when it leaves it out."""
        keyword = next((one.value for one in call.keywords if one.arg == name), None)
        order = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        if keyword is not None or name not in order:
            return keyword
        position = order.index(name)
        return call.args[position] if position < len(call.args) else None


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """As ``ast.walk``, in the order of the text, without the bodies of functions and classes defined inside."""
    yield node
    if isinstance(node, Function | ast.ClassDef):
        return
    for child in ast.iter_child_nodes(node):
        yield from walk(child)
