"""Operation and byte counts against brute-force loops, torch's own counter, and known intensities."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from ironlaw.laws import intensity

small = st.integers(1, 4)


@given(n=st.integers(1, 4096), size=st.sampled_from([1, 2, 4]))
def test_square_gemm_intensity(n, size):
    assert intensity.gemm(m=n, n=n, k=n, bytes_per_element=size).intensity_flop_per_byte == pytest.approx(
        2 * n / (3 * size)
    )


def test_gemv_is_bound_by_memory_at_any_size():
    assert intensity.gemm(m=1, n=4096, k=4096, bytes_per_element=2).intensity_flop_per_byte == pytest.approx(
        1, rel=1e-3
    )


@settings(max_examples=40, deadline=None)
@given(
    batch=small,
    group_in=small,
    group_out=small,
    groups=st.integers(1, 3),
    size=st.integers(5, 9),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
)
def test_convolution_counts_as_torch_does(batch, group_in, group_out, groups, size, kernel, stride, padding, dilation):
    shape = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    layer = torch.nn.Conv2d(group_in * groups, group_out * groups, kernel, bias=False, **shape)
    images = torch.zeros(batch, group_in * groups, size, size + 1)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        out = layer(images)
    work = intensity.conv2d(
        batch=batch,
        in_channels=group_in * groups,
        out_channels=group_out * groups,
        height=size,
        width=size + 1,
        kernel=kernel,
        **shape,
    )
    assert work.flops == counter.get_total_flops()
    assert work.traffic_bytes == 4 * (images.numel() + layer.weight.numel() + out.numel())


def test_depthwise_has_far_less_intensity():
    shape = {"batch": 1, "height": 56, "width": 56, "kernel": 3, "padding": 1, "in_channels": 64, "out_channels": 64}
    full, depthwise = intensity.conv2d(**shape), intensity.conv2d(**shape, groups=64)
    assert full.flops == 64 * depthwise.flops
    assert depthwise.intensity_flop_per_byte < 2.5 < 100 < full.intensity_flop_per_byte


@given(q=st.integers(1, 12), extra=st.integers(0, 12), heads=small, d=small, batch=small)
def test_causal_attention_counts_pairs(q, extra, heads, d, batch):
    keys = q + extra
    pairs = sum(1 for i, j in itertools.product(range(q), range(keys)) if j <= i + keys - q)
    shape = {"batch": batch, "heads": heads, "queries": q, "keys": keys, "head_dim": d}
    assert intensity.attention(**shape, causal=True).flops == 4 * batch * heads * d * pairs
    assert intensity.attention(**shape).flops == 4 * batch * heads * d * q * keys


def test_attention_bytes():
    shape = {"batch": 2, "heads": 8, "queries": 128, "keys": 256, "head_dim": 64}
    fused = intensity.attention(**shape, bytes_per_element=2)
    plain = intensity.attention(**shape, bytes_per_element=2, fused=False)
    assert fused.traffic_bytes == 2 * (2 * 2 * 8 * 128 * 64 + 2 * 2 * 8 * 256 * 64)
    assert plain.traffic_bytes - fused.traffic_bytes == 2 * 4 * 2 * 8 * 128 * 256
    grouped = intensity.attention(**shape, kv_heads=2)
    assert grouped.flops == fused.flops
    assert grouped.traffic_bytes < fused.traffic_bytes
    decode = intensity.attention(batch=1, heads=32, queries=1, keys=4096, head_dim=128)
    assert decode.intensity_flop_per_byte == pytest.approx(1, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 24), tile=st.integers(1, 8))
def test_no_blocked_product_moves_less_than_the_bound(n, tile):
    """Count the loads and stores of a tiled product that keeps a C tile and streams columns and rows."""
    moved = 0
    for i, j in itertools.product(range(0, n, tile), range(0, n, tile)):
        rows, columns = min(tile, n - i), min(tile, n - j)
        moved += rows * columns + n * (rows + columns)
    cache = tile * tile + 2 * tile
    assert moved >= intensity.gemm_cached_bytes(m=n, n=n, k=n, cache_bytes=cache, bytes_per_element=1) - 1e-9


def test_traffic_bound_by_hand():
    """S = 2^18 elements: 2 * 4096^3 / 512 - 2 * 2^18, four bytes each."""
    found = intensity.gemm_cached_bytes(m=4096, n=4096, k=4096, cache_bytes=2**20)
    assert found == 4 * (2 * 4096**3 / 512 - 2 * 2**18)


def test_large_cache_leaves_compulsory_traffic():
    compulsory = intensity.gemm(m=64, n=64, k=64).traffic_bytes
    assert intensity.gemm_cached_bytes(m=64, n=64, k=64, cache_bytes=1e9) == compulsory
    assert intensity.gemm_cached_bytes(m=4096, n=4096, k=4096, cache_bytes=2**20) > 5 * compulsory


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: intensity.gemm(m=0, n=1, k=1), "m must be a whole number of at least 1, got 0"),
        (lambda: intensity.gemm(m=1.5, n=1, k=1), "m must be a whole number"),
        (lambda: intensity.conv_out(3, 5), "kernel 5 .* does not fit size 3"),
        (
            lambda: intensity.conv2d(batch=1, in_channels=6, out_channels=4, height=8, width=8, kernel=3, groups=3),
            "groups must divide both channel counts, got 3 for 6 and 4",
        ),
        (
            lambda: intensity.attention(batch=1, heads=6, kv_heads=4, queries=1, keys=1, head_dim=1),
            "kv_heads must divide heads",
        ),
        (
            lambda: intensity.attention(batch=1, heads=1, queries=3, keys=2, head_dim=1, causal=True),
            "at least as many keys as queries, got 2 and 3",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@given(
    rate=st.floats(1e9, 1e15),
    stream=st.floats(1e9, 1e13),
    wide=st.sampled_from([2.0, 4.0]),
    unpack=st.floats(0.0, 100.0),
)
def test_packed_rows_is_where_the_two_rooflines_meet(rate, stream, wide, unpack):
    """One row less and packed weights are faster a weight; one row more and they are not."""
    rows = intensity.packed_rows(
        peak_flops_per_s=rate, bandwidth_bytes_per_s=stream, wide_bytes=wide, bits=4.5, unpack_flops=unpack
    )

    def seconds(m: float, bytes_: float, extra: float) -> float:
        return max((2.0 * m + extra) / rate, bytes_ / stream)

    assert seconds(rows + 1.0, 4.5 / 8.0, unpack) >= seconds(rows + 1.0, wide, 0.0)
    if rows > 1.0:
        assert seconds(rows - 1.0, 4.5 / 8.0, unpack) < seconds(rows - 1.0, wide, 0.0)


def test_weights_that_are_no_narrower_never_pay():
    assert intensity.packed_rows(peak_flops_per_s=1e12, bandwidth_bytes_per_s=1e10, wide_bytes=1.0, bits=8) == 0.0
