"""int8 where it does not pay or is not exact: no kernel for it, sums that saturate, operators without a kernel.

What is due depends on the CPU, so it is measured beside the question, directly: the same product in both precisions
in turns, the same sums against exact ones. The verdict is right when it agrees with that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from ironlaw.measure.inspection_onnx import saturating_pairs
from ironlaw.records import Goal, Inspection, Objective
from ironlaw.validating import models
from ironlaw.validating.case import Case, Said
from ironlaw.validating.here import Examined, Here, Planned, fastest

LITTLE = 1.2
"""What int8 adds on a CPU without a kernel for it."""
_CLOSE, _FAR = 1.35, 1.7
"""A prediction within the first factor of the direct comparison agrees with it, beyond the second it does not."""
_VNNI = ("avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm")


# ---------------------------------------------------------------- int8 on products


def _encoder(here: Here) -> Examined:
    models.seeded()
    return here.once("encoder", lambda: here.examine(models.Block(256, 4), torch.randn(1, 128, 256)))


def _encoder_planned(here: Here, objective: Objective) -> Planned:
    models.seeded()
    candidate = here.candidate(models.Block(256, 4), torch.randn(1, 128, 256), Goal(objective=objective))
    return here.plan(candidate, _encoder(here).diagnosis)


def _int8_as_predicted(here: Here) -> Said:
    """What int8 adds to the same runtime in float: predicted, and by Amdahl's law from a direct comparison."""
    planned = _encoder_planned(here, Objective.LATENCY)
    gain = here.once("int8 gain", _int8_product_gain)
    share = _product_share(_encoder(here))
    truth = 1.0 / (1.0 - share + share / gain)
    refused = planned.refused("int8_dynamic")
    floats = [p for p in planned.of("runtime") if "onnxruntime" in p.label]
    direct = f"one product gains {gain:.2f}x on {share:.0%} of the time: {truth:.2f}x"
    if refused:
        fires = True if truth < LITTLE else False if truth > LITTLE * _CLOSE else None
        return Said(fires=fires, words=f"{refused}; {direct}")
    if not floats:
        return Said(fires=None, words="no runtime to compare it with")
    added = planned.of("int8_dynamic")[0].predicted.speedup.value / floats[0].predicted.speedup.value
    apart = math.exp(abs(math.log(added / truth)))
    fires = True if apart < _CLOSE else False if apart > _FAR else None
    return Said(fires=fires, words=f"int8 is predicted to add {added:.2f}x to onnxruntime in float; {direct}")


def _product_share(seen: Examined) -> float:
    """Products with weights, of the time in operators."""
    ops = seen.diagnosis.ledger.ops
    products = sum(op.time_s or 0.0 for op in ops if op.kind == "matmul" and op.weights_bytes > 0.0)
    return products / sum(op.time_s or 0.0 for op in ops)


def _int8_for_size(here: Here) -> Said:
    """Asked for size, the same int8 is a lever, whatever its kernels: it must not be called worthless."""
    planned = _encoder_planned(here, Objective.SIZE)
    if refused := planned.refused("int8_dynamic"):
        return Said(fires=True, words=refused)
    best = planned.of("int8_dynamic")[0].predicted
    return Said(fires=best.speedup.value < 2.0, words=f"{best.speedup.value:.2f}x smaller: {best.basis}")


def _int8_product_gain() -> float:
    """fp32 over int8 seconds of one product of the encoder in ONNX Runtime, in turns on one thread."""
    rows, inner, columns = 128, 256, 1024
    random = np.random.default_rng(0)
    weights = random.standard_normal((inner, columns)).astype(np.float32) * 0.05
    x = random.standard_normal((rows, inner)).astype(np.float32)
    calls = [_ort_product(weights, inner, narrow=narrow) for narrow in (False, True)]
    wide_s, narrow_s = fastest([partial(call, x) for call in calls], seconds=1.0)
    return wide_s / narrow_s


def _ort_product(weights: Any, inner: int, *, narrow: bool) -> Callable[[Any], Any]:
    from onnx import TensorProto, helper, numpy_helper

    if narrow:
        scale = float(np.abs(weights).max() / 127.0)
        held = [
            numpy_helper.from_array(np.round(weights / scale).astype(np.int8), "w"),
            numpy_helper.from_array(np.float32(scale), "s"),
            numpy_helper.from_array(np.int8(0), "z"),
        ]
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
            helper.make_node("MatMulInteger", ["q", "w", "qz", "z"], ["i"]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["qs", "s"], ["both"]),
            helper.make_node("Mul", ["f", "both"], ["y"]),
        ]
    else:
        held = [numpy_helper.from_array(weights, "w")]
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    shapes = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", d]) for n, d in (("x", inner), ("y", "m"))]
    session = _session(_model(helper.make_graph(nodes, "product", shapes[:1], shapes[1:], held)))
    return lambda x: session.run(None, {"x": x})


# ---------------------------------------------------------------- int8 on convolutions


def _dynamic_refused(here: Here, model: Any, example: Any) -> Said:
    """Dynamic int8 is refused because its runtime has no dynamic kernel for convolutions."""
    models.seeded()
    seen = here.examine(model, example)
    planned = here.plan(here.candidate(model, example), seen.diagnosis)
    refused = planned.refused("int8_dynamic")
    others = f"; int8_static: {planned.refused('int8_static') or 'on the table'}"
    return Said(fires="convolutions" in refused, words=(refused or "int8_dynamic is not refused") + others)


# ---------------------------------------------------------------- saturation


def _saturation(here: Here, *, limit: int) -> Said:
    """Whether u8 by s8 sums are named as saturating, against what the product here gives."""
    x, w = np.full((4, 64), 255, np.uint8), np.full((64, 16), limit, np.int8)
    path = here.folder / f"integers{limit}.onnx"
    path.write_bytes(_integer_product(x, w))
    exact = x.astype(np.int64) @ w.astype(np.int64)
    saturates = bool((_session(path.read_bytes()).run(None, {"x": x})[0] != exact).any())
    seen = here.examine(models.Stack(models.dense(64)), torch.randn(4, 64))
    inspection = Inspection(saturating=saturating_pairs(path))
    facts = dataclasses.replace(seen.facts, inspection=inspection)
    found = dataclasses.replace(seen, facts=facts).found.get("int8_saturation")
    words = found.evidence if found else "no saturation is named"
    words += f"; sums of {limit} x 255 {'saturate' if saturates else 'are exact'} here"
    if limit < 127:
        return Said(fires=found is not None, words=words)
    return Said(fires=(found is not None) is saturates, words=words)


def _integer_product(x: Any, w: Any) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["y"])],
        "integers",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, list(x.shape))],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [x.shape[0], w.shape[1]])],
        [numpy_helper.from_array(a, n) for n, a in (("w", w), ("zx", np.uint8(0)), ("zw", np.int8(0)))],
    )
    return _model(graph)


def _model(graph: Any) -> bytes:
    import onnx
    from onnx import helper

    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    found: bytes = model.SerializeToString()
    return found


def _session(model: bytes) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _signed_first(here: Here, flags: tuple[str, ...]) -> Said:
    """The first static int8 that would be tried on a CPU with these flags is one that cannot saturate."""
    identity = here.machine.environment.identity
    isa = tuple(flag for flag in identity.isa if flag not in _VNNI) + flags
    environment = dataclasses.replace(here.machine.environment, identity=dataclasses.replace(identity, isa=isa))
    machine = dataclasses.replace(here.machine, environment=environment)
    models.seeded()
    model, example = models.cnn(16), torch.randn(1, 3, 32, 32)
    candidate = here.candidate(model, example, Goal(objective=Objective.SIZE))
    planned = here.plan(candidate, here.examine(model, example).diagnosis, machine).of("int8_static")
    if not planned:
        return Said(fires=None, words="int8_static is not on the table")
    settings = dict(planned[0].steps[-1].settings)
    safe = settings.get("activation") == "s8" or settings.get("reduce_range") is True
    return Said(fires=safe, words=f"first of {len(planned)}: {planned[0].label}")


# ---------------------------------------------------------------- granularity


def _both_granularities(here: Here, model: Any, example: Any) -> Said:
    """Per-channel and per-tensor scales are both tried: neither is assumed to be better."""
    candidate = here.candidate(model, example, Goal(objective=Objective.SIZE))
    planned = here.plan(candidate, here.examine(model, example).diagnosis)
    plans = [*planned.of("int8_static"), *planned.of("int8_dynamic"), *planned.of("int8_openvino")]
    asked = {dict(plan.steps[-1].settings).get("per_channel", True) for plan in plans}
    words = f"{len(plans)} int8 plans, per_channel {sorted(map(str, asked))}" if plans else "no int8 plan"
    return Said(fires=asked == {True, False}, words=words)


CASES = (
    Case(
        name="int8-without-a-kernel",
        numbers=(1,),
        reference="microsoft/onnxruntime#6695",
        situation="a transformer layer (128 tokens of width 256), int8 asked for latency",
        verdict="what int8 adds is predicted as a product here shows it: next to nothing without a kernel",
        cured="the same layer asked for size: int8 is a lever whatever its kernels",
        ask=_int8_as_predicted,
        ask_cured=_int8_for_size,
    ),
    Case(
        name="dynamic-int8-on-convolutions",
        numbers=(2,),
        reference="microsoft/onnxruntime#12854",
        situation="a network whose weights are mostly in convolutions, dynamic int8",
        verdict="refused: the runtime has no dynamic kernel for convolutions; use static int8",
        cured="a perceptron: not refused for that",
        ask=lambda here: _dynamic_refused(here, models.cnn(16)[:6], torch.randn(1, 3, 32, 32)),
        ask_cured=lambda here: _dynamic_refused(here, models.mlp(256, 512), torch.randn(8, 256)),
    ),
    Case(
        name="int8-sums-saturate",
        numbers=(5,),
        reference="microsoft/onnxruntime#14642",
        situation="u8 activations by s8 weights over their whole range",
        verdict="saturation is named exactly where sums here are wrong",
        cured="weights of 7 bits",
        ask=lambda here: _saturation(here, limit=127),
        ask_cured=lambda here: _saturation(here, limit=63),
    ),
    Case(
        name="int8-kind-by-instruction-set",
        numbers=(5,),
        reference="microsoft/onnxruntime#14642",
        situation="static int8 planned for this CPU without dot-product instructions",
        verdict="signed or 7-bit is tried first, since u8 by s8 may saturate",
        cured="the same CPU with VNNI: the faster u8 first",
        ask=lambda here: _signed_first(here, ()),
        ask_cured=lambda here: _signed_first(here, ("avx512_vnni",)),
    ),
    Case(
        name="per-channel-or-per-tensor",
        numbers=(19, 20),
        reference="microsoft/onnxruntime#11415; Edgecortix/pytorch_quantization PR 5",
        situation="a network to be quantised for size, where one granularity may lose much",
        verdict="both are on the table and measured; neither is assumed",
        cured="a norm alone: nothing to quantise is offered",
        ask=lambda here: _both_granularities(here, models.mlp(256, 512), torch.randn(64, 256)),
        ask_cured=lambda here: _both_granularities(here, nn.LayerNorm(64), torch.randn(4, 64)),
    ),
)
