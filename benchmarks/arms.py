"""What a peer is, as levers of ours with the peer's own settings: built by the same builder, run on the same targets.

The settings are those that the peer's own function takes when nothing is said (ONNX Runtime 1.32's
``quantize_static``, NNCF 3.4's ``quantize``, a plain ``torch.compile``, OpenVINO's own precision), not those that
ironlaw would choose. Two things are given to all alike: the threads of the baseline, and under the throughput
objective the batch of the tuned point, so that no ratio is won by batching alone.
"""

from __future__ import annotations

from ironlaw.records import Scalar

Steps = list[tuple[str, dict[str, Scalar]]]

EAGER = "eager"
ONNX_ARM = "ONNX Runtime"
QUICK = (EAGER, "eager + allocator", ONNX_ARM)


def arms(openvino_precision: str) -> dict[str, Steps]:
    """Steps of every arm that is made of levers, by name.

    ``openvino_precision`` is what OpenVINO runs when nothing is said (``bf16`` on a CPU that has it, else ``fp32``);
    NNCF's model runs with the same default, so what it leaves in float is bf16 there.
    """
    half: Steps = [("bf16_openvino", {})] if openvino_precision == "bf16" else []
    return {
        EAGER: [],
        "eager + allocator": [("allocator", {})],
        "torch.compile": [("compile", {"freezing": False, "mode": "default"})],
        ONNX_ARM: [("runtime", {"target": "onnxruntime"})],
        "ONNX Runtime int8": [
            ("int8_static", {"activation": "s8", "per_channel": False, "calibration": "minmax", "scope": "all"})
        ],
        "OpenVINO": half or [("runtime", {"target": "openvino"})],
        "NNCF int8": [("int8_openvino", {"preset": "performance", "fast_bias": True, "rows": 300}), *half],
    }


def at_batch(steps: Steps, batch: int, base: int) -> Steps:
    """The same arm with another batch."""
    return steps if batch == base else [*steps, ("batch", {"batch": batch})]


def openvino_precision() -> str:
    """The precision that OpenVINO takes on this CPU when nothing is said; fp32 where it is not installed."""
    try:
        from ironlaw.forms.telemetry import silence

        silence()
        import openvino
    except ImportError:
        return "fp32"
    hint = str(openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT"))
    return "bf16" if "bfloat16" in hint or "bf16" in hint else "fp32"
