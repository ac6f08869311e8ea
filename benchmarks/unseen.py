"""The 63 models and shapes of ``latency``: nine families, seven each, small enough that a call takes milliseconds.

The held-out models of ``prediction`` are among them; no shape is one that runtimes are calibrated on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import families

Made = tuple[Any, tuple[Any, ...]]
FAMILIES = (*families.FAMILIES, "cnn mobile", "decoder step", "u-net", "recommender")


def models() -> dict[str, tuple[str, Callable[[], Made]]]:
    """By name: (family, maker)."""
    return {**families.models(), **_more(), **_others()}


def workload(name: str) -> Any:
    """The model of that name as a workload, seeded."""
    import torch

    from ironlaw.workloads.inference import Inference

    torch.manual_seed(sum(map(ord, name)))
    model, example = models()[name][1]()
    return Inference(model, example, name=name)


def _more() -> dict[str, tuple[str, Callable[[], Made]]]:
    """More shapes of the families of ``prediction``."""
    return {
        "cnn-s-8x40": ("cnn small", partial(families.small_cnn, 8, 40, 1)),
        "cnn-s-28x21@8": ("cnn small", partial(families.small_cnn, 28, 21, 8)),
        "cnn-s-56x13@2": ("cnn small", partial(families.small_cnn, 56, 13, 2)),
        "cnn-s-16x30@16": ("cnn small", partial(families.small_cnn, 16, 30, 16)),
        "cnn-l-44x90": ("cnn large", partial(families.residual_cnn, 44, 90, 1)),
        "cnn-l-24x120@2": ("cnn large", partial(families.residual_cnn, 24, 120, 2)),
        "cnn-l-68x56@3": ("cnn large", partial(families.residual_cnn, 68, 56, 3)),
        "cnn-l-20x200": ("cnn large", partial(families.residual_cnn, 20, 200, 1)),
        "mlp-120": ("mlp", partial(families.mlp, 40, (120, 60), 1)),
        "mlp-2600": ("mlp", partial(families.mlp, 900, (2600, 1400), 1)),
        "mlp-700@20": ("mlp", partial(families.mlp, 350, (700, 350, 700), 20)),
        "mlp-1100@90": ("mlp", partial(families.mlp, 220, (1100, 550), 90)),
        "encoder-96x56": ("transformer", partial(families.encoder, 96, 3, 2, 56, 1)),
        "encoder-264x20@2": ("transformer", partial(families.encoder, 264, 6, 2, 20, 2)),
        "encoder-144x110": ("transformer", partial(families.encoder, 144, 4, 3, 110, 1)),
        "encoder-312x48": ("transformer", partial(families.encoder, 312, 6, 4, 48, 1)),
        "lstm-64x20@2": ("rnn", partial(families.recurrent, "LSTM", 24, 64, 20, 2)),
        "lstm-240x36": ("rnn", partial(families.recurrent, "LSTM", 100, 240, 36, 1)),
        "gru-112x44@4": ("rnn", partial(families.recurrent, "GRU", 48, 112, 44, 4)),
        "gru-72x25": ("rnn", partial(families.recurrent, "GRU", 30, 72, 25, 1)),
    }


def _others() -> dict[str, tuple[str, Callable[[], Made]]]:
    """The families that ``prediction`` does not have."""

    def made(maker: str, *shape: int, **more: int) -> Callable[[], Made]:
        def make() -> Made:
            from benchmarks import architectures

            found: Made = getattr(architectures, maker)(*shape, **more)
            return found

        return make

    mobile, step, unet, shop = "cnn mobile", "decoder step", "u-net", "recommender"
    return {
        "mobile-12x72": (mobile, made("mobile", 12, 72, 1)),
        "mobile-20x104": (mobile, made("mobile", 20, 104, 1)),
        "mobile-16x60@4": (mobile, made("mobile", 16, 60, 4)),
        "mobile5-18x88": (mobile, made("mobile", 18, 88, 1, kernel=5)),
        "grouped-24x80": (mobile, made("mobile", 24, 80, 1, groups=4)),
        "grouped-32x50@3": (mobile, made("mobile", 32, 50, 3, groups=8)),
        "dilated-20x76": (mobile, made("mobile", 20, 76, 1, dilation=2)),
        "step-160+50": (step, made("decoder_step", 160, 4, 3, 50, 1)),
        "step-288+180": (step, made("decoder_step", 288, 6, 4, 180, 1)),
        "step-448+90": (step, made("decoder_step", 448, 7, 4, 90, 1)),
        "step-224+400": (step, made("decoder_step", 224, 4, 3, 400, 1)),
        "step-320+120@4": (step, made("decoder_step", 320, 5, 3, 120, 4)),
        "step-640+60": (step, made("decoder_step", 640, 10, 5, 60, 1)),
        "step-192+70@12": (step, made("decoder_step", 192, 6, 2, 70, 12)),
        "unet-8x72": (unet, made("unet", 8, 72, 1)),
        "unet-12x48": (unet, made("unet", 12, 48, 1)),
        "unet-20x36@2": (unet, made("unet", 20, 36, 2)),
        "unet-16x60": (unet, made("unet", 16, 60, 1)),
        "unet-10x88": (unet, made("unet", 10, 88, 1, depth=3)),
        "unet-14x40@4": (unet, made("unet", 14, 40, 4)),
        "unet-24x24": (unet, made("unet", 24, 24, 1, depth=3)),
        "shop-6x5000": (shop, made("recommender", 6, 5000, 20, 1)),
        "shop-12x3000@16": (shop, made("recommender", 12, 3000, 28, 16)),
        "shop-20x8000@64": (shop, made("recommender", 20, 8000, 36, 64)),
        "shop-9x20000@200": (shop, made("recommender", 9, 20000, 44, 200)),
        "shop-16x1000@500": (shop, made("recommender", 16, 1000, 12, 500)),
        "shop-26x2000@32": (shop, made("recommender", 26, 2000, 18, 32)),
        "shop-4x60000@120": (shop, made("recommender", 4, 60000, 52, 120)),
    }
