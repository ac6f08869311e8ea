"""A live torch module as a workload's model: named inputs, positional calls, outputs that can be rebuilt.

Every way in which the module or its example can be wrong is found here and told as a UserError that names the
input or the line. The user's object is left as it was: evaluation mode holds only while we call it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.records import Form, UserError
from ironlaw.workloads.local import Local, check_finite_example, check_finite_weights
from ironlaw.workloads.rebuild import PLAIN, Rebuild, to_array
from ironlaw.workloads.source import blamed

Array = NDArray[Any]


def open_torch(model: Any, example: Any) -> Local:
    """A live module, in evaluation mode whenever it is called; the user's object is left as it was."""
    from ironlaw.workloads.positional import positional

    _check_module(model)
    names, values, keyword = _named(example, _parameters_of(model))
    inputs = tuple(to_array(value, f"example {name!r}") for name, value in zip(names, values, strict=True))
    check_finite_example(names, inputs)
    returned = _forward(model, names, inputs, keyword)
    output_names, structure, constants = _structure(returned)
    wrapped = model if not keyword and _is_flat(returned) else positional(model, names if keyword else None, len(names))

    def call(arrays: Sequence[Array]) -> list[Array]:
        found = _run(wrapped, arrays)
        return [to_array(t, "output") for t in (found if isinstance(found, tuple) else (found,))]

    parameters = {id(p): p for p in model.parameters()}.values()
    buffers = {id(b): b for b in model.buffers()}.values()
    return Local(
        form=Form.EAGER,
        model=wrapped,
        rebuild=Rebuild(
            names=names, dtypes=tuple(a.dtype.name for a in inputs), structure=structure, constants=constants
        ),
        output_names=output_names,
        call=call,
        inputs=inputs,
        outputs=tuple(call(inputs)),
        parameters=sum(p.numel() for p in parameters),
        weights_bytes=sum(t.numel() * t.element_size() for t in [*parameters, *buffers]),
    )


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode while it holds; each part's own mode afterwards."""
    modes = [(part, part.training) for part in model.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _check_module(model: Any) -> None:
    buffers = {name for name, _ in model.named_buffers()}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.device.type != "cpu":
            raise UserError(f"model: {name}", f"is on {tensor.device}", "Give it on the CPU: model.cpu().")
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            check_finite_weights(name, tensor.detach().double().numpy(), mask_allowed=name in buffers)


def _parameters_of(model: Any) -> tuple[str, ...]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return ()
    return tuple(name for name, p in signature.parameters.items() if p.kind in kinds)


def _named(example: Any, parameters: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Any, ...], bool]:
    if isinstance(example, Mapping):
        names, values, keyword = tuple(str(k) for k in example), tuple(example.values()), True
    else:
        values = tuple(example) if isinstance(example, tuple | list) else (example,)
        names, keyword = tuple(parameters[i] if i < len(parameters) else f"x{i}" for i in range(len(values))), False
    if not values:
        raise UserError("example", "holds no tensors", "Give what one call of the model takes.")
    return names, values, keyword


def _forward(model: Any, names: Sequence[str], inputs: Sequence[Array], keyword: bool) -> Any:
    import torch

    tensors = [torch.from_numpy(a.copy()) for a in inputs]
    with evaluating(model), torch.no_grad():
        try:
            return model(**dict(zip(names, tensors, strict=True))) if keyword else model(*tensors)
        except Exception as error:
            shapes = ", ".join(f"{n} {tuple(a.shape)} {a.dtype.name}" for n, a in zip(names, inputs, strict=True))
            wrong = f"forward raises on the example ({shapes})"
            raise blamed(error, f"model {type(model).__name__}", wrong) from error


def _run(model: Any, arrays: Sequence[Array]) -> Any:
    import torch

    with evaluating(model), torch.no_grad():
        return model(*[torch.from_numpy(np.array(a, copy=True, order="C")) for a in arrays])


def _is_flat(returned: Any) -> bool:
    import torch

    if isinstance(returned, torch.Tensor):
        return True
    return type(returned) is tuple and bool(returned) and all(isinstance(t, torch.Tensor) for t in returned)


def _structure(returned: Any) -> tuple[tuple[str, ...], Any, tuple[tuple[int, Any], ...]]:
    """Names of the output tensors, the pytree spec, and the leaves that are no tensors."""
    import torch
    from torch.utils import _pytree as pytree

    found, structure = pytree.tree_flatten_with_path(returned)
    names: list[str] = []
    constants: list[tuple[int, Any]] = []
    for index, (path, leaf) in enumerate(found):
        if isinstance(leaf, torch.Tensor):
            words = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
            name = "_".join(words)
            names.append(name if name and not name[0].isdigit() else f"output_{name}" if name else "output")
        elif isinstance(leaf, PLAIN):
            constants.append((index, leaf))
        else:
            raise UserError(
                f"model output ({type(leaf).__name__})",
                "is neither a tensor nor a tuple, list or dictionary of tensors",
                "Return tensors (for Hugging Face models: config.use_cache = False).",
            )
    if not names:
        raise UserError("model output", "holds no tensors", "Return at least one tensor.")
    return tuple(names), structure, tuple(constants)
