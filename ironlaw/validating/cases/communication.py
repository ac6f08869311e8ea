"""Messages between machines: α and β from published links, work from recorded ledgers, by the laws of collectives.

A step takes at least what its machine's peaks allow, and real kernels reach a part of that: verdicts hold from the
peak down to ``_ETA`` of it.
"""

from __future__ import annotations

import torch

from ironlaw import hardware
from ironlaw.laws.collectives import (
    butterfly_allreduce_s,
    message_s,
    ring_allgather_s,
    ring_allreduce_s,
)
from ironlaw.laws.memory import training_state, transformer_parameters
from ironlaw.records import Interval
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Here, fastest, one_thread
from ironlaw.validating.recorded import on, weights_bytes

_ETA = 0.3
_STEP = 3.0
"""A training step is about three forward passes (Kaplan et al. 2020, appendix B)."""
_GAIN = 1.05
_LAYERS, _WIDTH = 32, 4096


def _bandwidth(link: str) -> float:
    return hardware.link(link).bandwidth_bytes_per_s.value


def _forward(name: str, machine: str) -> Interval:
    """Seconds from the bound at peaks to a low efficiency."""
    found = on(name, machine).overlapped_bound_s
    assert found is not None
    return Interval(low=found.low, value=found.value, high=found.high / _ETA)


def _no_gain(gain: Interval, words: str) -> Said:
    fires = True if gain.high < _GAIN else False if gain.low > _GAIN else None
    return Said(fires=fires, words=f"{gain.low:.2f}x to {gain.high:.2f}x: {words}")


def _second_node(link: str) -> Said:
    """Two data-parallel nodes against one, gradients exchanged beside the work or after it."""
    step = _forward("resnet50-32", "v100-sxm2").scaled(_STEP)
    gradients = weights_bytes("resnet50-32")
    comm_s = ring_allreduce_s(ranks=2, message_bytes=gradients, alpha_s=0.0, bandwidth_bytes_per_s=_bandwidth(link))
    gain = Interval(
        low=2.0 * step.low / (step.low + comm_s),
        value=2.0 * step.value / (step.value + comm_s),
        high=2.0 * step.high / max(step.high, comm_s),
    )
    parts = f"a step takes {step.low * 1e3:.3g} to {step.high * 1e3:.3g} ms, the gradients {comm_s * 1e3:.3g} ms"
    return _no_gain(gain, f"{parts} over {link}")


def _tensor_parallel(alpha_s: float) -> Said:
    """Two GPUs on each layer of a decoding step, two all-reduces a layer."""
    alone = _forward("llama2-7b-decode-1", "a100-sxm4-80gb")
    once_s = butterfly_allreduce_s(
        ranks=2, message_bytes=2.0 * _WIDTH, alpha_s=alpha_s, bandwidth_bytes_per_s=_bandwidth("nvlink3")
    )
    comm_s = 2.0 * _LAYERS * once_s
    both = [seconds / (seconds / 2.0 + comm_s) for seconds in (alone.low, alone.value, alone.high)]
    gain = Interval(low=both[0], value=both[1], high=both[2])
    share = alpha_s / once_s
    return _no_gain(gain, f"{2 * _LAYERS} messages take {comm_s * 1e3:.3g} ms, {share:.0%} of it latency")


def _sharding_not_needed(*, layers: int, hidden: int) -> Said:
    """The whole training state fits on a device, and sharding it moves more bytes.

    Sharded, parameters are gathered for both passes and gradients scattered: three such moves for two (Rajbhandari
    et al. 2020, section 7).
    """
    device = hardware.machine("a100-sxm4-80gb")
    assert device.memory_bytes is not None
    parameters = transformer_parameters(layers=layers, hidden=hidden, vocabulary=50304, sequence=2048)
    state = training_state(parameters=parameters)["total_bytes"]
    one_s, both_s = (
        law(ranks=8, message_bytes=2.0 * parameters, alpha_s=0.0, bandwidth_bytes_per_s=_bandwidth("nvlink3"))
        for law in (ring_allgather_s, ring_allreduce_s)
    )
    whole_s, sharded_s = both_s, 3.0 * one_s
    fits = state < 0.8 * device.memory_bytes.value
    words = (
        f"{parameters / 1e9:.2g} G parameters need {state / 1e9:.3g} GB of {device.memory_bytes.value / 1e9:.3g} GB; "
        f"gradients take {whole_s * 1e3:.3g} ms, sharding everything {sharded_s * 1e3:.3g} ms"
    )
    return Said(fires=fits and whole_s < sharded_s, words=words)


def _compression_wasted(here: Here, link: str) -> Said:
    """Compressing a gradient to rank 4 takes longer than it saves on that link; the first was timed here."""
    side, rank = 2048, 4
    took_s = here.once("low-rank compression", lambda: _low_rank_s(side, rank))
    sizes = (4.0 * side * side, 4.0 * 2 * side * rank)
    whole_s, small_s = (
        message_s(message_bytes=size, alpha_s=0.0, bandwidth_bytes_per_s=_bandwidth(link)) for size in sizes
    )
    break_even = (sizes[0] - sizes[1]) / took_s
    words = f"{took_s * 1e3:.3g} ms of work saves {(whole_s - small_s) * 1e3:.3g} ms over {link}"
    ratio = took_s / (whole_s - small_s)
    fires = None if 0.67 < ratio < 1.5 else ratio > 1.0
    return Said(fires=fires, words=f"{words}; it pays below {break_even / 1e9:.3g} GB/s")


def _low_rank_s(side: int, rank: int) -> float:
    """One power iteration: two products and an orthogonalisation (Vogels et al. 2019)."""
    models.seeded()
    gradient, start = torch.randn(side, side), torch.randn(side, rank)

    def compress() -> None:
        left = torch.linalg.qr(gradient @ start).Q
        _ = gradient.T @ left

    with one_thread():
        return fastest([compress])[0]


CASES = (
    Case(
        name="second-node-no-gain",
        numbers=(47,),
        reference="pytorch/pytorch#63936",
        situation="ResNet-50 at batch 32 on V100s of two nodes with 1 Gb/s between them",
        verdict="gradients take longer than the work: no gain",
        cured="the same with NVLink between them",
        ask=lambda _: _second_node("ethernet-1g"),
        ask_cured=lambda _: _second_node("nvlink2"),
        replayed=True,
    ),
    Case(
        name="latency-of-small-all-reduces",
        numbers=(49,),
        reference="pytorch-labs/gpt-fast#111",
        situation="Llama 2 7B decoding on two A100, each all-reduce of 8 kB taking 500 us",
        verdict="messages' latency outweighs the work that is shared: slower than one",
        cured="5 us each",
        ask=lambda _: _tensor_parallel(500e-6),
        ask_cured=lambda _: _tensor_parallel(5e-6),
        replayed=True,
    ),
    Case(
        name="sharded-without-need",
        numbers=(50,),
        reference="allenai/OLMo#762",
        situation="a transformer of 1 G parameters trained on eight A100 of 80 GB",
        verdict="its state fits on each: keep it whole, which moves fewer bytes",
        cured="7 G parameters: they do not fit whole",
        ask=lambda _: _sharding_not_needed(layers=16, hidden=2048),
        ask_cured=lambda _: _sharding_not_needed(layers=32, hidden=4096),
        replayed=True,
    ),
    Case(
        name="compression-costs-more-than-it-saves",
        numbers=(51,),
        reference="pytorch/pytorch#65813",
        situation="a gradient of 16 MB compressed to rank 4 on this CPU for an NVLink",
        verdict="compressing takes longer than sending; it pays below a break-even bandwidth",
        cured="for 1 Gb/s Ethernet",
        ask=lambda here: _compression_wasted(here, "nvlink4"),
        ask_cured=lambda here: _compression_wasted(here, "ethernet-1g"),
    ),
)
