"""Operations and bytes of the operators that carry most of machine learning.

Why compulsory bytes: they are what must cross memory when every operand is touched once, so the
intensity is an upper bound and the true one lies at or below it. An FMA is two operations. It refuses
shapes that give an empty output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ironlaw.laws.checks import nonnegative, positive, whole
from ironlaw.laws.law import Input, Law, above_zero, at_least, count

DAO = "Dao et al., FlashAttention, NeurIPS 2022, algorithm 0 and theorem 2"
SMITH = "Smith, Lowery, Langou, van de Geijn, A Tight I/O Lower Bound for Matrix Multiplication, arXiv:1702.02017"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Operations of an operator and the bytes it must move."""

    flops: float
    traffic_bytes: float

    @property
    def intensity_flop_per_byte(self) -> float:
        return self.flops / self.traffic_bytes


def gemm(*, m: int, n: int, k: int, bytes_per_element: float = 4.0) -> Work:
    """``C[m,n] = A[m,k] B[k,n]``: ``2mnk`` operations, ``mk + kn + mn`` elements, each moved once."""
    whole(m=m, n=n, k=k)
    positive(bytes_per_element=bytes_per_element)
    return Work(flops=2.0 * m * n * k, traffic_bytes=bytes_per_element * (m * k + k * n + m * n))


def gemm_cached_bytes(*, m: int, n: int, k: int, cache_bytes: float, bytes_per_element: float = 4.0) -> float:
    """The least bytes that any schedule of a GEMM moves through a cache: ``max(2mnk / sqrt(S) - 2S, compulsory)``.

    ``S`` is the cache in elements. Holds for the classical algorithm (not Strassen) and one level of cache.
    """
    compulsory = gemm(m=m, n=n, k=k, bytes_per_element=bytes_per_element).traffic_bytes
    positive(cache_bytes=cache_bytes)
    elements = cache_bytes / bytes_per_element
    return max(compulsory, bytes_per_element * (2.0 * m * n * k / math.sqrt(elements) - 2.0 * elements))


def packed_rows(
    *,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    wide_bytes: float = 4.0,
    bits: float = 4.0,
    unpack_flops: float = 0.0,
) -> float:
    """Rows of a product from which ``bits``-wide weights stop paying against ``wide_bytes`` a weight.

    ``m`` rows cost ``max(2m / R, w / BW)`` seconds a weight in float and ``max((2m + u) / R, b / 8 / BW)`` packed,
    where unpacking costs ``u`` operations. They meet at ``m = (w R / BW - u) / 2``: the ridge point times half a
    weight, less half of the unpacking. 0 where unpacking is dearer than the stream, or nothing is narrower.
    """
    positive(peak_flops_per_s=peak_flops_per_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    positive(wide_bytes=wide_bytes, bits=bits)
    nonnegative(unpack_flops=unpack_flops)
    if bits / 8.0 >= wide_bytes:
        return 0.0
    return max(0.0, (wide_bytes * peak_flops_per_s / bandwidth_bytes_per_s - unpack_flops) / 2.0)


def conv_out(size: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """Output length of a convolution along one axis. Raises ``ValueError`` when nothing is left."""
    whole(size=size, kernel=kernel, stride=stride, dilation=dilation)
    whole(0, padding=padding)
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    if out < 1:
        raise ValueError(f"kernel {kernel} (dilation {dilation}) does not fit size {size} with padding {padding}")
    return out


def conv2d(
    *,
    batch: int,
    in_channels: int,
    out_channels: int,
    height: int,
    width: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bytes_per_element: float = 4.0,
) -> Work:
    """A direct convolution with a square kernel: input, weights and output moved once, no bias.

    Winograd and FFT need fewer operations, im2col more bytes.
    """
    whole(batch=batch, in_channels=in_channels, out_channels=out_channels, groups=groups)
    positive(bytes_per_element=bytes_per_element)
    if in_channels % groups or out_channels % groups:
        raise ValueError(f"groups must divide both channel counts, got {groups} for {in_channels} and {out_channels}")
    rows = conv_out(height, kernel, stride, padding, dilation)
    columns = conv_out(width, kernel, stride, padding, dilation)
    weights = out_channels * (in_channels // groups) * kernel * kernel
    outputs = batch * out_channels * rows * columns
    elements = batch * in_channels * height * width + weights + outputs
    return Work(flops=2.0 * weights * batch * rows * columns, traffic_bytes=bytes_per_element * elements)


def attention(
    *,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    kv_heads: int | None = None,
    causal: bool = False,
    fused: bool = True,
    bytes_per_element: float = 2.0,
) -> Work:
    """Scaled dot-product attention: two products of ``2 * queries * keys * head_dim`` operations a head.

    Fused moves Q, K, V and the output once. Not fused also writes and reads scores and probabilities.
    ``kv_heads`` below ``heads`` is grouped-query attention. ``causal`` counts only the pairs that are
    attended, with the last query aligned to the last key. The softmax itself is not counted.
    """
    kv = heads if kv_heads is None else kv_heads
    whole(batch=batch, heads=heads, queries=queries, keys=keys, head_dim=head_dim, kv_heads=kv)
    positive(bytes_per_element=bytes_per_element)
    if heads % kv:
        raise ValueError(f"kv_heads must divide heads, got {kv} and {heads}")
    if causal and queries > keys:
        raise ValueError(f"causal attention needs at least as many keys as queries, got {keys} and {queries}")
    pairs = queries * keys - (queries * (queries - 1) // 2 if causal else 0)
    elements = 2 * batch * heads * queries * head_dim + 2 * batch * kv * keys * head_dim
    if not fused:
        elements += 4 * batch * heads * queries * keys
    return Work(flops=4.0 * batch * heads * pairs * head_dim, traffic_bytes=bytes_per_element * elements)


def _numbers(work: Work) -> dict[str, float]:
    return {
        "flops": work.flops,
        "traffic_bytes": work.traffic_bytes,
        "intensity_flop_per_byte": work.intensity_flop_per_byte,
    }


def _gemm(*, m: int, n: int, k: int, bytes_per_element: float) -> dict[str, float]:
    return _numbers(gemm(m=m, n=n, k=k, bytes_per_element=bytes_per_element))


def _conv2d(**shape: float) -> dict[str, float]:
    return _numbers(conv2d(**shape))  # type: ignore[arg-type]


def _attention(*, fused: str, causal: str, kv_heads: int, heads: int, **shape: float) -> dict[str, float]:
    kv = kv_heads or heads
    return _numbers(
        attention(heads=heads, kv_heads=kv, fused=fused == "yes", causal=causal == "yes", **shape)  # type: ignore[arg-type]
    )


def _yes_no(name: str, meaning: str, default: str) -> Input:
    return Input(name=name, unit="", meaning=meaning, choices=("yes", "no"), default=default)


_UNITS = "flops: FLOP (an FMA is 2); traffic_bytes: B; intensity_flop_per_byte: FLOP/B"
_ONCE = "every operand crosses memory once; more traffic when the working set exceeds the cache"
_F32 = above_zero("bytes_per_element", "B", "size of an element", default=4.0)
_MNK = (
    count("m", "rows of A and C"),
    count("n", "columns of B and C"),
    count("k", "columns of A, rows of B"),
)

LAWS = (
    Law(
        name="gemm",
        family="intensity",
        title="Work and intensity of a matrix product",
        equation="2mnk operations; mk + kn + mn elements",
        inputs=(*_MNK, _F32),
        unit=_UNITS,
        valid_while=_ONCE,
        source="Golub and Van Loan, Matrix Computations, section 1.1; Williams et al., Roofline, 2009",
        function=_gemm,
        example=(("m", 1024), ("n", 1024), ("k", 1024), ("bytes_per_element", 2)),
    ),
    Law(
        name="gemm-io-bound",
        family="intensity",
        title="Least traffic of a matrix product through a cache",
        equation="max(2mnk / sqrt(S) - 2S, compulsory), S elements of cache",
        inputs=(*_MNK, above_zero("cache_bytes", "B", "capacity of the cache"), _F32),
        unit="B",
        valid_while="the classical algorithm is used (no Strassen) and one cache level matters",
        source=SMITH,
        function=gemm_cached_bytes,
        example=(("m", 4096), ("n", 4096), ("k", 4096), ("cache_bytes", 1048576)),
    ),
    Law(
        name="packed-rows",
        family="intensity",
        title="Rows up to which narrow weights pay",
        equation="(w R / BW - u) / 2, w bytes a wide weight, u operations to unpack one",
        inputs=(
            above_zero("peak_flops_per_s", "FLOP/s", "arithmetic rate of the product, the same in both"),
            above_zero("bandwidth_bytes_per_s", "B/s", "rate at which weights arrive"),
            above_zero("wide_bytes", "B", "size of a weight before", default=4.0),
            above_zero("bits", "1", "bits of a weight after, scales included", default=4.0),
            at_least(0, "unpack_flops", "FLOP", "operations that unpacking a weight costs", default=0.0),
        ),
        unit="1",
        valid_while="activations are small beside the weights, arithmetic overlaps with the stream, "
        "and both products have the same rate",
        source="Williams et al., Roofline, 2009 (ridge point), applied to a product of m rows",
        function=packed_rows,
        example=(("peak_flops_per_s", 312e12), ("bandwidth_bytes_per_s", 2.039e12), ("wide_bytes", 2)),
    ),
    Law(
        name="conv2d",
        family="intensity",
        title="Work and intensity of a convolution",
        equation="2 N H' W' K^2 (C/g) O operations; input, weights and output once",
        inputs=(
            count("batch", "images"),
            count("in_channels", "channels of the input"),
            count("out_channels", "channels of the output"),
            count("height", "rows of the input"),
            count("width", "columns of the input"),
            count("kernel", "side of the square kernel"),
            count("stride", "stride", default=1),
            count("padding", "zeros on each side", low=0, default=0),
            count("dilation", "spacing of the kernel", default=1),
            count("groups", "groups; in_channels for depthwise", default=1),
            _F32,
        ),
        unit=_UNITS,
        valid_while=_ONCE + "; direct convolution, no Winograd, FFT or im2col",
        source="Sze et al., Efficient Processing of Deep Neural Networks, Proc. IEEE 105(12), 2017, eq. 1",
        function=_conv2d,
        example=(
            ("batch", 1),
            ("in_channels", 64),
            ("out_channels", 64),
            ("height", 56),
            ("width", 56),
            ("kernel", 3),
            ("padding", 1),
        ),
    ),
    Law(
        name="attention",
        family="intensity",
        title="Work and intensity of attention",
        equation="4 B H Q K D operations; Q, K, V and output once, plus 4 B H Q K elements when not fused",
        inputs=(
            count("batch", "sequences"),
            count("heads", "query heads"),
            count("queries", "query positions; 1 when decoding"),
            count("keys", "key positions"),
            count("head_dim", "width of a head"),
            count("kv_heads", "key and value heads; 0 means as many as heads", low=0, default=0),
            _yes_no("causal", "whether each query sees only keys up to its own position", "no"),
            _yes_no("fused", "whether scores stay on chip", "yes"),
            at_least(0, "bytes_per_element", "B", "size of an element", above=True, default=2.0),
        ),
        unit=_UNITS,
        valid_while=_ONCE + "; the softmax is not counted; a fused kernel re-reads K and V once per query block",
        source=DAO,
        function=_attention,
        example=(("batch", 1), ("heads", 32), ("queries", 1), ("keys", 4096), ("head_dim", 128), ("kv_heads", 8)),
    ),
)
