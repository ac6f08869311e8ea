"""Memory: ZeRO's and Megatron's published figures, torch's own parameter counts, and a step that is run."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.laws import memory
from ironlaw.laws.training_peak import LayerMemory, training_peak

sizes = st.integers(0, 50)
layers_of = st.lists(
    st.builds(LayerMemory, parameter_bytes=sizes, saved_bytes=sizes, output_bytes=sizes, temporary_bytes=sizes),
    min_size=1,
    max_size=9,
)


def run_step(layers, optimiser, *, segments=0, kept=False, step_temporary=0):
    """A step played as allocations and releases; returns the largest sum that was live at once."""
    live = {"optimiser": optimiser, **{f"p{i}": layer.parameter_bytes for i, layer in enumerate(layers)}}
    if kept:
        live |= {f"g{i}": layer.parameter_bytes for i, layer in enumerate(layers)}
    peak = 0
    starts = [math.ceil(len(layers) * k / segments) for k in range(segments)] or [0]
    ends = [*starts[1:], len(layers)]
    for start, end in zip(starts, ends, strict=True):
        if not segments:
            live |= {f"a{i}": layers[i].saved_bytes for i in range(start, end)}
        elif start:
            live[f"c{start}"] = layers[start - 1].output_bytes
    for start, end in reversed(list(zip(starts, ends, strict=True))):
        if segments:
            live |= {f"a{i}": layers[i].saved_bytes for i in range(start, end)}
        for i in reversed(range(start, end)):
            live[f"g{i}"] = layers[i].parameter_bytes
            working = {"out": layers[i].output_bytes, "in": layers[i - 1].output_bytes if i else 0}
            working["temporary"] = layers[i].temporary_bytes
            peak = max(peak, sum(live.values()) + sum(working.values()))
            del live[f"a{i}"]
        live.pop(f"c{start}", None)
    assert not any(name[0] in "ac" for name in live)
    return max(peak, sum(live.values()) + step_temporary)


@settings(max_examples=200)
@given(layers=layers_of, optimiser=sizes, segments=st.integers(0, 9), kept=st.booleans(), extra=st.integers(0, 400))
def test_peak_of_a_step_that_is_run(layers, optimiser, segments, kept, extra):
    segments = min(segments, len(layers))
    peak = training_peak(
        layers, optimiser_bytes=optimiser, segments=segments, gradients_kept=kept, step_temporary_bytes=extra
    )
    ran = run_step(layers, optimiser, segments=segments, kept=kept, step_temporary=extra)
    assert peak.total_bytes == ran
    assert peak.parameters_bytes == sum(layer.parameter_bytes for layer in layers)


def test_where_the_peak_lies():
    wide_first = [LayerMemory(parameter_bytes=1, saved_bytes=100, output_bytes=10)] * 4
    found = training_peak(wide_first, optimiser_bytes=8)
    assert found.moment == "backward of layer 3"
    assert found.activations_bytes == 400
    less = training_peak(wide_first, optimiser_bytes=8, segments=2)
    assert less.moment == "backward of layer 3 after recomputing its segment"
    assert less.activations_bytes == 2 * 100 + 10
    heavy = [LayerMemory(parameter_bytes=1000, saved_bytes=1, output_bytes=1)] * 3
    assert training_peak(heavy, optimiser_bytes=6000).moment == "backward of layer 0"
    stepping = training_peak(heavy, optimiser_bytes=6000, step_temporary_bytes=3000)
    assert stepping.moment == "optimiser step"
    assert stepping.total_bytes == 3000 + 3000 + 6000 + 3000


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_zero_figure_1(stage, gigabytes):
    """Rajbhandari et al., figure 1: 7.5 B parameters, 64 ranks, mixed-precision Adam."""
    found = memory.training_state(parameters=7.5e9, ranks=64, stage=stage)
    assert found["total_bytes"] / 1e9 == pytest.approx(gigabytes, rel=0.005)


@pytest.mark.parametrize(
    ("layers", "hidden", "billions"),
    [
        (24, 2304, 1.7),
        (36, 4096, 7.5),
        (40, 6144, 18.4),
        (48, 8192, 39.1),
        (80, 12288, 145.6),
        (96, 16384, 310.1),
        (128, 25600, 1008.0),
    ],
)
def test_megatron_table_1(layers, hidden, billions):
    """Narayanan et al. 2021, table 1: vocabulary 51,200, sequence 2,048."""
    found = memory.transformer_parameters(layers=layers, hidden=hidden, vocabulary=51200, sequence=2048)
    assert found / 1e9 == pytest.approx(billions, abs=0.06)


def test_parameters_of_a_real_transformer():
    """torch's encoder layer has the 12 h^2 + 13 h of the formula; embeddings are counted by hand."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, dim_feedforward=256)
    counted = sum(p.numel() for p in layer.parameters())
    formula = memory.transformer_parameters(layers=1, hidden=64, vocabulary=100, sequence=16) - (100 + 16) * 64
    assert formula == counted


def test_korthikanti_table_2_and_section_5():
    """GPT-3 175B: 5as/h is 80, so selective recomputation drops 70 % of the activations."""
    shape = {"sequence": 2048, "batch": 1, "hidden": 12288, "heads": 96}
    unit = 2048 * 12288
    assert memory.transformer_activations(**shape) == pytest.approx(unit * (34 + 80))
    kept = memory.transformer_activations(**shape, recompute="selective") / memory.transformer_activations(**shape)
    assert 1 - kept == pytest.approx(0.70, abs=0.005)
    split = memory.transformer_activations(**shape, tensor_parallel=8)
    assert split == pytest.approx(unit * (10 + 24 / 8 + 80 / 8))
    sequence = memory.transformer_activations(**shape, tensor_parallel=8, sequence_parallel=True)
    assert sequence == pytest.approx(unit * (34 + 80) / 8)
    assert memory.transformer_activations(**shape, recompute="full") == 2 * unit


@given(layers=st.integers(1, 80), saved=st.integers(1, 100), boundary=st.integers(1, 100))
def test_best_segments_and_the_square_root(layers, saved, boundary):
    sizes_ = {"layers": layers, "saved_bytes": saved, "boundary_bytes": boundary}
    best = memory.best_segments(**sizes_)
    least = memory.checkpointed_bytes(**sizes_, segments=best)
    assert all(memory.checkpointed_bytes(**sizes_, segments=k) >= least for k in range(1, layers + 1))
    assert least <= 2 * math.sqrt(layers * saved * boundary) + saved + boundary or best in (1, layers)


def test_chen_square_root():
    """n layers of one unit each: k = sqrt(n) gives 2 sqrt(n)."""
    assert memory.best_segments(layers=100, saved_bytes=1, boundary_bytes=1) == 10
    assert memory.checkpointed_bytes(layers=100, saved_bytes=1, boundary_bytes=1, segments=10) == 20


def test_kv_cache_of_llama_3_8b():
    """32 layers, 8 KV heads of 128, 16 bit: 128 KiB a token."""
    assert memory.kv_cache_bytes(layers=32, kv_heads=8, head_dim=128, tokens=1) == 128 * 1024


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: training_peak([], optimiser_bytes=0), "at least one layer"),
        (
            lambda: training_peak(
                [LayerMemory(parameter_bytes=1, saved_bytes=1, output_bytes=1)], optimiser_bytes=0, segments=2
            ),
            "segments must not exceed the 1 layers, got 2",
        ),
        (lambda: memory.training_state(parameters=1, stage=4), "stage must be 0, 1, 2 or 3"),
        (
            lambda: memory.checkpointed_bytes(layers=2, saved_bytes=1, boundary_bytes=1, segments=3),
            "segments must not exceed layers",
        ),
        (
            lambda: memory.transformer_activations(sequence=1, batch=1, hidden=1, heads=1, recompute="some"),
            "recompute must be one of none, selective, full, got 'some'",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
