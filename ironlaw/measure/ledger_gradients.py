"""FLOPs of backward operators and of optimisers, in the convention of ``ledger_flops``.

A product's gradients cost what the products that make them cost: one for each operand that is asked for. Fused
attention computes its scores again in backward, so that it is five products, not four. An optimiser that is fused, or
works on lists, counts as the elementwise operators that it stands for.

Torch's counter is wrong for the weight's gradient of a grouped convolution (it takes ``groups`` times too much: a
depthwise one of 96 channels counts 96-fold) and has nothing for the CPU's attention backward; both are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ironlaw.measure.operands import numel, numel_of_all

Formula = Callable[[Sequence[Any], dict[str, Any], Any], float]

BATCH_NORM_BACKWARD = 9.0  # normalise again (2), product and two sums (3), input: product, two differences, scale (4)
LAYER_NORM_BACKWARD = 13.0  # the same, with the scale before the sums (1) and sums for weight and bias apart (3)
SOFTMAX_BACKWARD = 4.0  # product, sum, difference, product

UNFUSED = {
    "_fused_sgd_": 3.0,  # mul_, add_ (momentum), add_
    "_fused_adam_": 7.0,  # lerp_, mul_, addcmul_, sqrt, div, add_, addcdiv_
    "_fused_adamw_": 8.0,  # and mul_ for the decay
    "_fused_adagrad_": 4.0,  # addcmul_, sqrt, add_, addcdiv_
}
"""Elementwise operators an element that a fused optimiser stands for."""


def list_flops(kind: str, args: Sequence[Any]) -> float:
    """``_foreach`` operators: as the operator that they repeat, on all tensors of the first list."""
    return numel_of_all(args[0]) if kind in ("elementwise", "reduce") else 0.0


def _convolution(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    grad, source, weight, transposed, mask = args[0], args[1], args[2], bool(args[7]), args[10]
    wide = source if transposed else grad
    one = 2.0 * numel(wide) * math.prod(weight.shape[1:])
    return float(one * (bool(mask[0]) + bool(mask[1])))


def _attention(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    """Scores again, then the gradients of values, of probabilities, of queries and of keys."""
    query, key, value = (one.shape for one in args[1:4])
    pairs = math.prod(query[:-1]) * key[-2]
    return float(2.0 * pairs * (3.0 * query[-1] + 2.0 * value[-1]))


def _rnn_layer(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    steps = math.prod(args[0].shape[:-1])
    return float(4.0 * steps * (numel(args[1]) + numel(args[2])))


def _batch_norm(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return BATCH_NORM_BACKWARD * numel(args)


def _layer_norm(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return LAYER_NORM_BACKWARD * numel(args)


def _softmax(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return SOFTMAX_BACKWARD * numel(args)


def _per_grad(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return numel(args)


def _per_output(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return numel(out)


def _embedding_bag(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    """Every row that was looked up gets its bag's gradient."""
    return float(args[1].numel() * args[0].shape[-1])


def _losses(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    """One for each target: the rest of the result is only zeroed."""
    return float(args[2].numel())


def _windows(axes: int) -> Formula:
    def formula(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
        size = args[2] if isinstance(args[2], list | tuple) else [args[2]]
        return numel(args) * float(math.prod(size) if len(size) == axes else size[0] ** axes)

    return formula


def _distances(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
    return float(3.0 * numel(args) * args[1].shape[-1])


def _fused(factor: float) -> Formula:
    def formula(args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float:
        return factor * numel_of_all(args[0])

    return formula


FORMULAS: dict[str, Formula] = {
    "convolution_backward": _convolution,
    **dict.fromkeys(
        [
            "_scaled_dot_product_flash_attention_for_cpu_backward",
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ],
        _attention,
    ),
    "mkldnn_rnn_layer_backward": _rnn_layer,
    **dict.fromkeys(["native_batch_norm_backward", "batch_norm_backward"], _batch_norm),
    **dict.fromkeys(["native_layer_norm_backward", "native_group_norm_backward"], _layer_norm),
    **dict.fromkeys(["_softmax_backward_data", "_log_softmax_backward_data"], _softmax),
    **dict.fromkeys(
        ["max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "embedding_dense_backward"], _per_grad
    ),
    **dict.fromkeys(["adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"], _per_grad),
    **dict.fromkeys(["_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"], _per_output),
    "avg_pool2d_backward": _windows(2),
    "avg_pool3d_backward": _windows(3),
    "_embedding_bag_backward": _embedding_bag,
    "_embedding_bag_dense_backward": _embedding_bag,
    **dict.fromkeys(["nll_loss_backward", "nll_loss2d_backward"], _losses),
    "_cdist_backward": _distances,
    **{name: _fused(factor) for name, factor in UNFUSED.items()},
}
