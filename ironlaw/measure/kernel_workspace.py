"""What CPU kernels allocate for themselves, and the results that fake tensors get wrong.

Why a table: a kernel's scratch is no tensor of the program, so that neither a dispatch mode nor a fake tensor sees
it, yet torch's allocator does. Each kernel is a script, in the order in which it allocates and frees, with
:data:`RESULT` where a result is allocated: the order decides what the C library can use again. The scripts are those
of the kernels that torch calls on x86 (oneDNN for fp32 convolutions and LSTMs, ``slow_conv2d`` otherwise), written down
from the calls of ``malloc`` over shapes; docs/ledger.md says it in words.
It refuses to guess for other operators: they allocate their results, as most do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ironlaw.measure.c_allocator import Give, Take
from ironlaw.measure.operands import tensors

PAGE = 4096
PLAIN_CHANNELS = 4  # oneDNN reads up to so many channels from the plain layout, without a copy
RESULT = object()
Script = tuple[object, ...]


def script(func: Any, args: Sequence[Any], out: Any) -> Script:
    """What the kernel does with the allocator, one :data:`RESULT` for each result; () where it only makes results."""
    name = func._schema.name
    if name == "aten::convolution":
        return _convolution(args[0], args[1], tensors(out)[0], _Shape(args[0], args[1], args[3:9]))
    if name == "aten::convolution_backward":
        return _convolution_backward(args[1], args[2], args[0], _Shape(args[1], args[2], args[4:10]), args[10])
    if name == "aten::mkldnn_rnn_layer":
        return (*[RESULT] * 4, *_around(_lstm_scratch(args, 1)))
    if name == "aten::mkldnn_rnn_layer_backward":
        return (*[RESULT] * 7, *_around(_lstm_scratch(args, 2)))
    if name in ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"):
        return (RESULT, *_around([_nbytes(one) for one in args[:3] if _must_be_copied(one)]))
    return ()


def repaired(func: Any, args: Sequence[Any], out: Any) -> Any:
    """The result of a call; where it is fake and torch's fake form is wrong, with the size that it has in truth."""
    import torch

    if _keeps_workspace(func, args) and not out[3].numel():
        steps, batch, width = args[0].shape
        return (*out[:3], out[3].new_empty(lstm_workspace(steps, batch, width, int(args[10]))))
    if func._schema.name == "aten::native_batch_norm" and args[1] is not None:
        wide = args[1].dtype == torch.float32  # statistics are kept as precisely as the weights
        return (out[0], *(one.to(torch.float32) if wide and one.dtype != torch.float32 else one for one in out[1:]))
    return out


# ---------------------------------------------------------------- LSTM


def lstm_workspace(steps: int, batch: int, width: int, hidden: int) -> int:
    """Bytes that oneDNN keeps for the backward of one LSTM layer and direction, in fp32.

    Gates and projected states of every step, three pairs of layer states as wide as the wider side and two as wide as
    the hidden state, each rounded to pages (oneDNN ``rnn_utils``); exact on AVX2, where it was checked.
    """
    return sum(_lstm_arrays(steps, batch, width, hidden).values())


def untouched_bytes(func: Any, args: Sequence[Any], *, after: bool) -> int:
    """How much of an LSTM's workspace is not written by its forward, or (``after``) by its backward either.

    Forward writes gates, one pair of wide states and half of a pair of hidden ones, whose other half is for layers that
    this one does not have; backward writes the gradients of states, of which half again belong to other layers.
    """
    if not _keeps_workspace(func, args):
        return 0
    steps, batch, width = args[0].shape
    size = _lstm_arrays(steps, batch, width, int(args[10]))
    never = size["projected"] + size["wide"] // 6 + size["hidden"] // 2
    return never if after else never + size["wide"] // 2 + size["hidden"] // 4


def fills_workspace(func: Any) -> bool:
    """Whether a call writes what the forward of an LSTM has left."""
    return bool(func._schema.name == "aten::mkldnn_rnn_layer_backward")


def _keeps_workspace(func: Any, args: Sequence[Any]) -> bool:
    import torch

    return bool(func._schema.name == "aten::mkldnn_rnn_layer" and args[15] and torch.is_grad_enabled())


def _lstm_arrays(steps: int, batch: int, width: int, hidden: int) -> dict[str, int]:
    def pages(columns: int) -> int:
        return -(-4 * batch * columns // PAGE) * PAGE

    return {
        "gates": pages(steps * _leading(4 * hidden)),
        "projected": pages(steps * _leading(hidden)),
        "wide": 3 * pages(2 * (steps + 1) * _leading(max(width, hidden))),
        "hidden": 2 * pages(2 * (steps + 1) * hidden),
    }


def _leading(columns: int) -> int:
    """oneDNN's ``get_good_ld``: whole cache lines, and never a multiple of 256 elements (they would share sets)."""
    rounded = -(-columns // 16) * 16
    return rounded + 16 if rounded % 256 == 0 else rounded


def _lstm_scratch(args: Sequence[Any], copies: int) -> list[float]:
    """Both weights in the kernel's layout, with ``copies`` 2 their gradients, too, and gates of all steps."""
    steps, batch, width = args[0].shape
    four, hidden = (int(one) for one in args[2].shape)
    packed = [4.0 * _leading(four) * one for one in (width, hidden)]
    gradients = [4.0 * four * _leading(one) for one in (width, hidden)] if copies == 2 else []
    return [*packed, *gradients, 4.0 * batch * (steps * _leading(four) + 2 * copies * _leading(hidden))]


# ---------------------------------------------------------------- products


def _must_be_copied(tensor: Any) -> bool:
    """Whether BLAS cannot read a matrix as it lies, such as one that was expanded."""
    if tensor.dim() < 2 or tensor.numel() == 0:
        return False
    rows, columns = tensor.shape[-2:]
    down, across = tensor.stride()[-2:]
    by_rows = across == 1 and down >= max(1, columns)
    by_columns = down == 1 and across >= max(1, rows)
    return not (by_rows or by_columns or rows == 1 or columns == 1)


# ---------------------------------------------------------------- convolutions


class _Shape:
    """What decides which kernel a convolution gets.

    ``given`` is its stride, padding, dilation, whether it is transposed, output padding, groups.
    """

    def __init__(self, source: Any, weight: Any, given: Sequence[Any]) -> None:
        self.stride, self.dilation, self.transposed, self.groups = given[0], given[2], bool(given[3]), int(given[5])
        self.strided = any(one != 1 for one in self.stride)
        self.depthwise = self.groups > 1 and int(weight.shape[1]) == 1
        self.onednn = _has_onednn(source) and self._worthwhile(source, weight)
        self.last = _channels_last(source) or _channels_last(weight)

    def _worthwhile(self, source: Any, weight: Any) -> bool:
        """Torch's ``use_mkldnn``: small work without stride stays with its own kernels."""
        import torch

        wide = all(one > 3 for one in weight.shape[2:])
        uneven = self.strided or any(one != 1 for one in self.dilation)
        much = source.shape[0] >= 16 or any(one != 1 for one in weight.shape[2:]) or torch.get_num_threads() > 1
        enough = self.groups > 1 or wide or source.shape[0] > 1 or source.numel() > 20480
        return bool((uneven or much) and enough)


def _convolution(source: Any, weight: Any, result: Any, shape: _Shape) -> Script:
    if not shape.onednn:
        return (RESULT, *_around(_columns(source, weight, result, shape)))
    if shape.last:
        return (Take("weight", _nbytes(weight)), RESULT, Give("weight"))
    extra = _nbytes(result) if shape.transposed and shape.strided else 0
    return _product(_blocked(source, shape), _nbytes(weight), _blocked(result, shape), extra)


def _convolution_backward(source: Any, weight: Any, grad: Any, shape: _Shape, mask: Sequence[bool]) -> Script:
    """Two products, one after the other: the source's gradient, then the weight's; the bias's is a sum."""
    bias = (RESULT,) if mask[2] else ()
    wanted = [RESULT for one in mask[:2] if one]
    if not shape.onednn:
        return (*wanted, *bias, *_around(_columns(source, weight, grad, shape)))
    if shape.last:
        return (*(step for one in wanted for step in (Take("weight", _nbytes(weight)), one, Give("weight"))), *bias)
    into, out_of, weights = _blocked(source, shape), _blocked(grad, shape), _nbytes(weight)
    extra = _nbytes(source) if shape.strided and not shape.transposed and not shape.depthwise else 0
    first = _product(out_of, weights, into, extra) if mask[0] else ()
    direct = shape.depthwise and shape.strided  # that kernel reads the plain layouts
    second = (RESULT,) if direct else _weight_product(out_of, into, weights)
    return (*first, *(second if mask[1] else ()), *bias)


def _product(source: int, weight: int, result: int, extra: int) -> Script:
    """Blocked copies of source and weight until the product is made, then of the result until it is copied out."""
    before = (*_take("source", source), *_take("weight", weight), *_take("result", result))
    between = (*_give("weight", weight), *_give("source", source), RESULT)
    return (*before, *between, *_take("extra", extra), *_give("result", result), *_give("extra", extra))


def _weight_product(grad: int, source: int, weight: int) -> Script:
    before = (*_take("grad", grad), *_take("source", source), *_take("weight", weight))
    return (*before, *_give("source", source), *_give("grad", grad), RESULT, *_give("weight", weight))


def _take(key: str, size: int) -> Script:
    return (Take(key, size),) if size else ()


def _give(key: str, size: int) -> Script:
    return (Give(key),) if size else ()


def _around(sizes: Sequence[float]) -> Script:
    """Scratch that lives while the kernel works."""
    keys = [f"scratch {index}" for index in range(len(sizes))]
    return (*(Take(key, int(size)) for key, size in zip(keys, sizes, strict=True)), *(Give(key) for key in keys[::-1]))


def _has_onednn(source: Any) -> bool:
    import torch

    if not torch.backends.mkldnn.is_available():
        return False
    if source.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(source.dtype == torch.float32)


def _columns(source: Any, weight: Any, result: Any, shape: _Shape) -> list[float]:
    """``slow_conv2d`` unfolds every window of the whole batch; the transposed one works example by example."""
    window = math.prod(weight.shape[2:])
    if shape.transposed:
        return [float(math.prod(result.shape[1:]) * window * source.element_size())]
    if window == 1:
        return []
    return [float(source.shape[0] * source.shape[1] * window * math.prod(result.shape[2:]) * source.element_size())]


def _blocked(tensor: Any, shape: _Shape) -> int:
    """Bytes in a layout with channels in blocks of a vector; few channels are read as they are."""
    channels = int(tensor.shape[1])
    if channels < PLAIN_CHANNELS and shape.groups == 1:
        return 0
    block = _block()
    return _nbytes(tensor) * (-(-channels // block) * block) // channels


def _block() -> int:
    import torch

    return 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8


def _channels_last(tensor: Any) -> bool:
    import torch

    if tensor.dim() != 4:
        return False
    return bool(tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous())


def _nbytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
