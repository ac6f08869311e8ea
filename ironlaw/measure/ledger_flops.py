"""FLOPs of aten operators: one convention, and None where there is no formula.

Convention: an FMA is two; biases are not counted; attention counts its two products and no softmax, and
a causal mask saves nothing (as ``torch.utils.flop_counter``); recurrent layers count their products;
elementwise operators count one per output element, reductions one per input element, windows one per
element that they look at. A complex product is four real ones. What moves or looks up data does no arithmetic.

Torch's own registry is used where it is right. It has no formula for the CPU's fused kernels, recurrent,
quantised and int8 products, nor for grouped-query attention: these are here, and those of backward and optimisers
in ``ledger_gradients``. Other packages add theirs with :func:`counts` or ``ledger.register``. An operator without a
formula is None and so listed by the ledger: it is never taken as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ironlaw.measure import kinds, ledger_gradients
from ironlaw.measure.operands import numel, tensors

Formula = Callable[[Sequence[Any], dict[str, Any], Any], float]
"""Arguments, keyword arguments and result of the call, to FLOPs."""

SOFTMAX_PER_ELEMENT = 5.0  # maximum, subtract, exponential, sum, divide
BATCH_NORM_PER_ELEMENT = 2.0  # inference: one scale, one shift
NORM_PER_ELEMENT = 7.0  # mean, variance (2), normalise (2), scale, shift


@dataclass(frozen=True, slots=True)
class _Registered:
    kind: str
    formula: Formula
    traffic: Formula | None = None


_REGISTERED: dict[str, _Registered] = {}


def counts(name: str, *, kind: str, traffic: Formula | None = None) -> Callable[[Formula], Formula]:
    """Register the FLOPs of a custom operator ``namespace::name`` for the ledger.

    ``traffic`` gives the bytes of a call where its operands do not tell them. Raises ValueError for a kind that is
    not one of ``kinds.KINDS``, and for a name without a namespace.

    >>> @counts("mylib::swish", kind="elementwise")
    ... def _(args, kwargs, out):
    ...     return 4.0 * out.numel()
    """
    if kind not in kinds.KINDS:
        raise ValueError(f"kind {kind!r} is not one of {', '.join(kinds.KINDS)}")
    if "::" not in name:
        raise ValueError(f"operator {name!r} has no namespace: give it as namespace::name, without the overload")

    def add(formula: Formula) -> Formula:
        _REGISTERED[name] = _Registered(kind, formula, traffic)
        return formula

    return add


def registered_kind(name: str) -> str | None:
    """The kind under which a custom operator was registered."""
    found = _REGISTERED.get(name)
    return found.kind if found else None


def registered_bytes(name: str, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float | None:
    """What a call of a registered operator moves, where its registration says so."""
    found = _REGISTERED.get(name)
    return float(found.traffic(args, kwargs, out)) if found and found.traffic else None


def flops(func: Any, kind: str, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float | None:
    """FLOPs of one call of an ``OpOverload``, or None when nobody knows."""
    full = func._schema.name
    if full in _REGISTERED:
        return _REGISTERED[full].formula(args, kwargs, out)
    name = kinds.aten_name(full)
    factor = _complex_factor(kind, name, args)
    if name.startswith("_foreach_"):
        return factor * ledger_gradients.list_flops(kind, args)
    if name in _FORMULAS:
        return factor * _FORMULAS[name](args, kwargs, out)
    formula = _torch_registry().get(func._overloadpacket)
    if formula is not None:
        return factor * float(formula(*args, **kwargs, out_val=out))
    if kind in _BY_KIND:
        return factor * _BY_KIND[kind](args, kwargs, out)
    return None


@cache
def _torch_registry() -> dict[Any, Any]:
    from torch.utils.flop_counter import flop_registry

    return dict(flop_registry)


def _complex_factor(kind: str, name: str, args: Sequence[Any]) -> float:
    if not any(tensor.is_complex() for tensor in tensors(args)):
        return 1.0
    if kind in kinds.ARITHMETIC:
        return 4.0
    if kind != "elementwise":
        return 2.0
    return 6.0 if name.strip("_") in ("mul", "div", "addcmul", "pow", "square", "reciprocal") else 2.0


# ---------------------------------------------------------------- by kind


def _per_output(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return numel(out)


def _per_input(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return numel(args)


def _nothing(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return 0.0


def _softmax(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return SOFTMAX_PER_ELEMENT * numel(args)


def _norm(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return NORM_PER_ELEMENT * numel(args)


_BY_KIND: dict[str, Formula] = {
    "elementwise": _per_output,
    "reduce": _per_input,
    "softmax": _softmax,
    "norm": _norm,
    "embedding": _nothing,
    "copy": _nothing,
    "view": _nothing,
}


# ---------------------------------------------------------------- by name


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> float:
    """``[..., S_q, D] x [..., S_k, D] -> [..., S_q, S_k] x [..., S_k, D_v]``; heads are the query's (grouped too)."""
    rows = math.prod(query[:-1])
    return 2.0 * rows * key[-2] * (query[-1] + value[-1])


def _attention(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return attention_flops(args[0].shape, args[1].shape, args[2].shape)


def _multi_head(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    query, key, value, _width, _heads, in_weight, _bias, out_weight = args[:8]
    rows = [math.prod(x.shape[:-1]) for x in (query, key, value)]
    into = 2.0 * sum(rows) * in_weight.numel() / 3.0
    return float(into + attention_flops(query.shape, key.shape, value.shape) + 2.0 * rows[0] * out_weight.numel())


def _encoder_layer(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    source, width, heads = args[:3]
    rows = math.prod(source.shape[:-1])
    attention = _multi_head((source, source, source, width, heads, args[3], args[4], args[5]), {}, out)
    return float(attention + 2.0 * rows * (args[14].numel() + args[16].numel()))


def _rnn_layer(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    steps = math.prod(args[0].shape[:-1])
    return float(2.0 * steps * (args[1].numel() + args[2].numel()))


def _fused_cell(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return 2.0 * numel(args)


def _int_product(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return float(2.0 * numel(out) * args[0].shape[-1])


def _vector_product(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return 2.0 * numel(args)


def _add_vector_product(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return 2.0 * float(args[1].numel())


def _outer(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return 2.0 * numel(out)


def _add_batched(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return float(2.0 * float(args[1].numel()) * args[2].shape[-1])


def _distances(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return float(3.0 * numel(out) * args[0].shape[-1])


def _windows(axes: int) -> Formula:
    """One per element of each window; a window given as one number is that long along every axis."""

    def formula(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
        size = args[1] if isinstance(args[1], list | tuple) else [args[1]]
        return numel(out) * float(math.prod(size) if len(size) == axes else size[0] ** axes)

    return formula


def _batch_norm(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    training = bool(args[5]) if len(args) > 5 and isinstance(args[5], bool) else False
    return (NORM_PER_ELEMENT if training else BATCH_NORM_PER_ELEMENT) * numel(args)


def _sort(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return numel(args) * max(1.0, math.log2(max(2, args[0].shape[-1] if args[0].dim() else 1)))


def _fourier(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    """5 N log2 N real operations a transform (Cooley and Tukey 1965; the FFTW convention)."""
    across = [args[0].shape[d] for d in args[1]]
    size = max(numel(args), numel(out))
    real = 0.5 if not (args[0].is_complex() and tensors(out)[0].is_complex()) else 1.0
    return real * 5.0 * size * math.log2(max(2, math.prod(across)))


def _embedding_bag(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return float(float(args[1].numel()) * args[0].shape[1])


def _quantised(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    weight = args[1].unpack()[0]
    return float(2.0 * numel(out) * weight.numel() / weight.shape[0])


def _quantised_layers(gates: int) -> Formula:
    """Recurrent layers whose weights are packed: widths come from the input and the first state."""

    def formula(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
        packed = len(tensors(args[1])) == 1 and not tensors(args[1])[0].is_floating_point()
        source, rest = args[0], args[2:] if packed else args[1:]
        state, layers, ways = tensors(rest[0])[0], int(rest[3]), 2 if rest[6] else 1
        hidden = int(state.shape[-1])
        into = [int(source.shape[-1]), *[ways * hidden] * (layers - 1)]
        steps = float(math.prod(source.shape[:-1]))
        return 2.0 * steps * gates * hidden * ways * sum(one + hidden for one in into)

    return formula


_FORMULAS: dict[str, Formula] = {
    **ledger_gradients.FORMULAS,
    **dict.fromkeys(
        [
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
        ],
        _attention,
    ),
    "_native_multi_head_attention": _multi_head,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "mkldnn_rnn_layer": _rnn_layer,
    "_thnn_fused_lstm_cell": _fused_cell,
    "_thnn_fused_gru_cell": _fused_cell,
    **dict.fromkeys(["_int_mm", "_weight_int8pack_mm", "_weight_int4pack_mm_for_cpu"], _int_product),
    **dict.fromkeys(["mv", "dot", "vdot"], _vector_product),
    "addmv": _add_vector_product,
    **dict.fromkeys(["ger", "addr"], _outer),
    "addbmm": _add_batched,
    "_cdist_forward": _distances,
    **dict.fromkeys(["max_pool2d_with_indices", "avg_pool2d", "mkldnn_max_pool2d"], _windows(2)),
    **dict.fromkeys(["max_pool3d_with_indices", "avg_pool3d"], _windows(3)),
    **dict.fromkeys(["avg_pool1d", "max_pool1d"], _windows(1)),
    **dict.fromkeys(
        ["_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d"], _per_input
    ),
    **dict.fromkeys(["native_batch_norm", "_native_batch_norm_legit"], _batch_norm),
    "_native_batch_norm_legit_no_training": _batch_norm,
    **dict.fromkeys(["sort", "argsort", "topk", "kthvalue", "median", "mode"], _sort),
    **dict.fromkeys(["_fft_r2c", "_fft_c2r", "_fft_c2c"], _fourier),
    **dict.fromkeys(["_embedding_bag", "_embedding_bag_forward_only"], _embedding_bag),
    **dict.fromkeys(
        [f"quantized_{one}" for one in ("linear", "linear_relu", "linear_dynamic", "linear_relu_dynamic")],
        _quantised,
    ),
    **dict.fromkeys([f"quantized_conv{d}d{relu}" for d in "123" for relu in ("", "_relu")], _quantised),
    "quantized_lstm": _quantised_layers(4),
    "quantized_gru": _quantised_layers(3),
    "native_dropout": _per_input,
}
