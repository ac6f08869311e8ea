"""Inference that is timed as if it were training: autograd on, dropout and batch norms in training mode."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ironlaw.linting.history import before, inside
from ironlaw.linting.regions import Region
from ironlaw.linting.rules import Mistake, mistake
from ironlaw.linting.source import Function, Source

_OFF = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})
_TRAINS = frozenset({"backward", "zero_grad"})
_BY_NAME = frozenset({"model", "net", "network", "module"})
_MAKERS = ("torch.nn.", "torchvision.models.", "torch.hub.load", "timm.create_model", "torch.load", "torch.compile")


def modes(source: Source, region: Region) -> Iterator[Mistake]:
    """``grad-on`` and ``train-mode``, where the region calls a torch model and does not train it."""
    timed = _models_called(source, region)
    if "torch" not in source.imported or not timed or _trains(source, inside(source, region)):
        return
    if not _without_grad(source, region):
        yield mistake("grad-on", region.line, f"{timed[0]}() runs with gradients recorded")
    if not _evaluates(source) and not _pretrained(source, timed[0]):
        yield mistake("train-mode", region.line, f"nothing puts {timed[0]} into evaluation mode")


def _models_called(source: Source, region: Region) -> list[str]:
    """Models that are called directly in the region: by a variable's name, or as an attribute of ``self``."""
    known = _model_names(source)
    names = dict.fromkeys(source.called(call) for call in source.calls(inside(source, region)))
    return [name for name in names if name in known or name.removeprefix("self.") in _BY_NAME - {name}]


def _model_names(source: Source) -> set[str]:
    found = {name for name in _BY_NAME if name not in source.functions}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _makes_model(source, node.value):
            found.add(node.targets[0].id)
    return found


def _makes_model(source: Source, value: ast.expr) -> bool:
    """A constructor of a module, with whatever ``.to(...)`` and ``.eval()`` behind it."""
    for call in _chain(value):
        name = source.called(call)
        if name in source.classes and _is_module(source, name):
            return True
        if name.startswith(_MAKERS) and not name.startswith(("torch.nn.functional", "torch.nn.init")):
            return True
        if name.endswith(".from_pretrained") and "okenizer" not in name and "rocessor" not in name:
            return True
    return False


def _chain(value: ast.expr) -> Iterator[ast.Call]:
    """A call and those that it is a method of the result of."""
    node: ast.expr = value
    while isinstance(node, ast.Call):
        yield node
        node = node.func.value if isinstance(node.func, ast.Attribute) else node.func


def _is_module(source: Source, name: str) -> bool:
    bases = [source.name_of(base) for base in source.classes[name].bases]
    return any(base.endswith("Module") or (base in source.classes and _is_module(source, base)) for base in bases)


def _trains(source: Source, nodes: Iterable[ast.AST]) -> bool:
    return any(source.called(call).rsplit(".", 1)[-1] in _TRAINS for call in source.calls(nodes))


def _without_grad(source: Source, region: Region) -> bool:
    """Whether gradients are off: inside, around, by a decorator, at a caller, or for the whole file."""
    if _uses_off(source, inside(source, region)) or _under(source, region.at):
        return True
    if _switched_off(source, before(source, region.at)):
        return True
    functions = [region.scope, *(source.functions[one] for one in _names(source, region) if one in source.functions)]
    if any(_decorated(source, one) for one in functions if isinstance(one, Function)):
        return True
    if any(_under(source, call) for call in source.call_sites(region.scope)):
        return True
    return _for_the_file(source)


def _names(source: Source, region: Region) -> list[str]:
    return [call.func.id for call in source.calls(region.body) if isinstance(call.func, ast.Name)]


def _uses_off(source: Source, nodes: Iterable[ast.AST]) -> bool:
    """Whether something in these statements turns gradients off, as a context or by a call."""
    return any(source.called(call).rsplit(".", 1)[-1] in _OFF for call in source.calls(nodes))


def _switched_off(source: Source, earlier: Iterable[ast.AST]) -> bool:
    """A call that turned them off before, and for what follows: a context that has ended does not count."""
    calls = source.calls(one for one in earlier if not isinstance(one, Function | ast.ClassDef))
    return any(source.called(call).endswith(("set_grad_enabled", ".__enter__")) for call in calls)


def _is_off(source: Source, node: ast.With | ast.AsyncWith) -> bool:
    calls = [one.context_expr for one in node.items if isinstance(one.context_expr, ast.Call)]
    return any(source.called(call).rsplit(".", 1)[-1] in _OFF for call in calls)


def _under(source: Source, node: ast.AST) -> bool:
    return any(isinstance(one, ast.With | ast.AsyncWith) and _is_off(source, one) for one in source.ancestors(node))


def _decorated(source: Source, function: Function) -> bool:
    names = [source.name_of(one.func if isinstance(one, ast.Call) else one) for one in function.decorator_list]
    return any(name.rsplit(".", 1)[-1] in _OFF for name in names)


def _for_the_file(source: Source) -> bool:
    """Gradients off for good: parameters that need none, or a forward that is decorated."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.called(node).endswith(".requires_grad_"):
            return True
        if isinstance(node, Function) and node.name == "forward" and _decorated(source, node):
            return True
    return False


def _evaluates(source: Source) -> bool:
    """Whether anything in the file is put into evaluation mode."""
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    methods = [(call.func.attr, call.args) for call in calls if isinstance(call.func, ast.Attribute)]
    return any(name == "eval" or (name == "train" and _is_false(given)) for name, given in methods)


def _is_false(arguments: list[ast.expr]) -> bool:
    return bool(arguments) and isinstance(arguments[0], ast.Constant) and arguments[0].value is False


def _pretrained(source: Source, name: str) -> bool:
    """Whether a model comes from a library that hands it out in evaluation mode."""
    assigned = [node for node in ast.walk(source.tree) if isinstance(node, ast.Assign)]
    values = [one.value for one in assigned if isinstance(one.targets[0], ast.Name) and one.targets[0].id == name]
    calls = [call for value in values for call in _chain(value)]
    return any(source.called(call).endswith((".from_pretrained", "jit.load")) for call in calls)
