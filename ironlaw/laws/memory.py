"""Memory of training and serving in closed forms: state, activations, checkpointing, KV cache.

Why formulas beside the walk of ``training_peak``: a plan for a model that nobody has built yet has
only its shape. They count tensors; the allocator's slack and the framework's own memory are measured,
not derived, and no factor stands in for them.

Legend: all sizes in bytes. Closed forms of transformers: s sequence, b batch, h hidden, a heads, l layers.
"""

from __future__ import annotations

import math

from ironlaw.laws.checks import nonnegative, positive, whole
from ironlaw.laws.law import Input, Law, above_zero, at_least, count

ZERO = "Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020, figure 1"
KORTHIKANTI = "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, table 2"
CHEN = "Chen, Xu, Zhang, Guestrin, Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174, section 4"
NARAYANAN = "Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, SC 2021, eq. 2"
RECOMPUTE = ("none", "selective", "full")


def training_state(
    *,
    parameters: float,
    parameter_bytes: float = 2.0,
    gradient_bytes: float = 2.0,
    optimiser_bytes: float = 12.0,
    ranks: int = 1,
    stage: int = 0,
) -> dict[str, float]:
    """Bytes a rank holds for parameters, gradients and optimiser state, sharded as ZeRO ``stage`` 0 to 3.

    The defaults are mixed-precision Adam: fp16 parameters and gradients; fp32 copy, momentum and
    variance. fp32 SGD with momentum is 4, 4, 4. Activations and temporaries come on top.
    """
    positive(parameters=parameters)
    nonnegative(parameter_bytes=parameter_bytes, gradient_bytes=gradient_bytes, optimiser_bytes=optimiser_bytes)
    whole(ranks=ranks)
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage must be 0, 1, 2 or 3, got {stage}")
    parts = {
        "parameters_bytes": parameters * parameter_bytes / (ranks if stage >= 3 else 1),
        "gradients_bytes": parameters * gradient_bytes / (ranks if stage >= 2 else 1),
        "optimiser_bytes": parameters * optimiser_bytes / (ranks if stage >= 1 else 1),
    }
    return {**parts, "total_bytes": sum(parts.values())}


def checkpointed_bytes(*, layers: int, saved_bytes: float, boundary_bytes: float, segments: int) -> float:
    """Activations of ``layers`` equal layers checkpointed in ``segments``: ``k * boundary + ceil(n / k) * saved``.

    Costs one more forward. Least near ``k = sqrt(n * saved / boundary)``.
    """
    whole(layers=layers, segments=segments)
    nonnegative(saved_bytes=saved_bytes, boundary_bytes=boundary_bytes)
    if segments > layers:
        raise ValueError(f"segments must not exceed layers, got {segments} and {layers}")
    return segments * boundary_bytes + math.ceil(layers / segments) * saved_bytes


def best_segments(*, layers: int, saved_bytes: float, boundary_bytes: float) -> int:
    """The number of segments that makes :func:`checkpointed_bytes` least (the fewest of them on a tie)."""
    whole(layers=layers)
    sizes = {
        k: checkpointed_bytes(layers=layers, saved_bytes=saved_bytes, boundary_bytes=boundary_bytes, segments=k)
        for k in range(1, layers + 1)
    }
    return min(sizes, key=lambda k: (sizes[k], k))


def transformer_parameters(*, layers: int, hidden: int, vocabulary: int, sequence: int) -> float:
    """Parameters of a GPT: ``12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h))``, tied embeddings, 4h wide MLP."""
    whole(layers=layers, hidden=hidden, vocabulary=vocabulary, sequence=sequence)
    return 12.0 * layers * hidden**2 + 13.0 * layers * hidden + float(vocabulary + sequence) * hidden


def transformer_activations(
    *,
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    layers: int = 1,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> float:
    """Bytes that backward keeps of transformer layers, 16-bit activations, unfused attention with dropout.

    ``s b h (10 + 24/t + 5 a s/(h t))`` a layer, all over ``t`` with sequence parallelism; ``selective``
    drops the ``a s`` term (as fused attention does); ``full`` keeps ``2 s b h``.
    """
    whole(sequence=sequence, batch=batch, hidden=hidden, heads=heads, layers=layers, tensor_parallel=tensor_parallel)
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute must be one of {', '.join(RECOMPUTE)}, got {recompute!r}")
    unit = float(sequence * batch * hidden * layers)
    if recompute == "full":
        return 2.0 * unit
    t = tensor_parallel
    scores = 0.0 if recompute == "selective" else 5.0 * heads * sequence / hidden / t
    return unit * ((34.0 / t if sequence_parallel else 10.0 + 24.0 / t) + scores)


def kv_cache_bytes(
    *, layers: int, kv_heads: int, head_dim: int, tokens: int, batch: int = 1, bytes_per_element: float = 2.0
) -> float:
    """Keys and values kept while decoding: ``2 * layers * kv_heads * head_dim * tokens * batch`` elements."""
    whole(layers=layers, kv_heads=kv_heads, head_dim=head_dim, tokens=tokens, batch=batch)
    positive(bytes_per_element=bytes_per_element)
    return 2.0 * layers * kv_heads * head_dim * tokens * batch * bytes_per_element


_SEQUENCE, _HIDDEN = count("sequence", "tokens of a sequence (s)"), count("hidden", "hidden size (h)")
_TENSORS = "only tensors are counted: allocator slack, fragmentation and the framework's own memory come on top"

LAWS = (
    Law(
        name="training-state",
        family="memory",
        title="Parameters, gradients and optimiser state of a rank",
        equation="N (p + g + o), each divided by the ranks that share it",
        inputs=(
            above_zero("parameters", "1", "parameters of the model (N)"),
            at_least(0, "parameter_bytes", "B", "bytes of a parameter (p)", default=2.0),
            at_least(0, "gradient_bytes", "B", "bytes of its gradient (g)", default=2.0),
            at_least(0, "optimiser_bytes", "B", "bytes of optimiser state for it, master copy included", default=12.0),
            count("ranks", "data-parallel ranks", default=1),
            Input(
                name="stage",
                unit="1",
                meaning="ZeRO stage: 1 shards the optimiser, 2 also gradients, 3 also parameters",
                low=0,
                high=3,
                whole=True,
                default=0,
            ),
        ),
        unit="B",
        valid_while=_TENSORS + "; gathered parameters and buckets of stages 2 and 3 are temporaries",
        source=ZERO,
        function=training_state,
        example=(("parameters", 7.5e9), ("ranks", 64), ("stage", 2)),
    ),
    Law(
        name="checkpointing",
        family="memory",
        title="Activations with checkpointing",
        equation="k boundary + ceil(n / k) saved",
        inputs=(
            count("layers", "equal layers (n)"),
            at_least(0, "saved_bytes", "B", "what backward keeps of a layer"),
            at_least(0, "boundary_bytes", "B", "output of a layer"),
            count("segments", "segments (k), at most the layers"),
        ),
        unit="B",
        valid_while="layers are equal and in a chain; costs one more forward; " + _TENSORS,
        source=CHEN,
        function=checkpointed_bytes,
        example=(("layers", 64), ("saved_bytes", 1e8), ("boundary_bytes", 1e7), ("segments", 8)),
    ),
    Law(
        name="transformer-parameters",
        family="memory",
        title="Parameters of a GPT",
        equation="12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h))",
        inputs=(count("layers", "layers (l)"), _HIDDEN, count("vocabulary", "tokens known (V)"), _SEQUENCE),
        unit="1",
        valid_while="GPT-2 shape: biases, MLP of 4h, tied embeddings, learned positions; not gated or grouped-query",
        source=NARAYANAN,
        function=transformer_parameters,
        example=(("layers", 96), ("hidden", 12288), ("vocabulary", 51200), ("sequence", 2048)),
    ),
    Law(
        name="transformer-activations",
        family="memory",
        title="Activations of transformer layers",
        equation="s b h l (10 + 24/t + 5 a s/(h t))",
        inputs=(
            _SEQUENCE,
            count("batch", "sequences of a micro-batch (b)"),
            _HIDDEN,
            count("heads", "attention heads (a)"),
            count("layers", "layers (l)", default=1),
            count("tensor_parallel", "ranks that share a layer (t)", default=1),
            Input(
                name="recompute",
                unit="",
                meaning="what backward computes again: nothing, the attention core, or the layer",
                choices=RECOMPUTE,
                default="none",
            ),
        ),
        unit="B",
        valid_while="16-bit activations, dropout, unfused attention, 4h wide MLP; embeddings and loss are left out",
        source=KORTHIKANTI,
        function=transformer_activations,
        example=(("sequence", 2048), ("batch", 1), ("hidden", 12288), ("heads", 96), ("layers", 96)),
    ),
    Law(
        name="kv-cache",
        family="memory",
        title="Keys and values kept while decoding",
        equation="2 layers kv_heads head_dim tokens batch bytes",
        inputs=(
            count("layers", "layers"),
            count("kv_heads", "key and value heads"),
            count("head_dim", "width of a head"),
            count("tokens", "tokens of context"),
            count("batch", "sequences", default=1),
            above_zero("bytes_per_element", "B", "size of an element", default=2.0),
        ),
        unit="B",
        valid_while="every layer keeps the whole context; less with windows or latent attention",
        source="Pope et al., Efficiently Scaling Transformer Inference, MLSys 2023, section 2",
        function=kv_cache_bytes,
        example=(("layers", 32), ("kv_heads", 8), ("head_dim", 128), ("tokens", 8192)),
    ),
)
