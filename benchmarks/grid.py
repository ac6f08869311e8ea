"""The committed grid of ``search``: what someone would try who tries everything, as lists of levers with settings.

Fixed here and never changed to suit the search: runtimes x precisions x quantiser settings x thread counts. A point
that cannot be built on a machine (no compiler, no OpenVINO) is a failed point there and costs its time all the same.
"""

from __future__ import annotations

from ironlaw.records import Scalar

Steps = list[tuple[str, dict[str, Scalar]]]

BASES: dict[str, Steps] = {
    "eager": [],
    "eager, allocator": [("allocator", {})],
    "eager, channels last": [("channels_last", {})],
    "eager, clean graph": [("clean_up", {})],
    "eager bf16": [("bf16", {})],
    "compile": [("compile", {"freezing": False})],
    "compile, frozen": [("compile", {"freezing": True})],
    "compile bf16": [("bf16", {}), ("compile", {"freezing": True})],
    "aotinductor": [("aotinductor", {})],
    "onnxruntime": [("runtime", {"target": "onnxruntime"})],
    "onnxruntime, no spinning": [
        ("runtime", {"target": "onnxruntime"}),
        ("runtime_options", {"target": "onnxruntime", "option": "spinning", "value": "False"}),
    ],
    "onnxruntime dynamic int8": [("int8_dynamic", {})],
    "openvino": [("runtime", {"target": "openvino"})],
    "openvino bf16": [("bf16_openvino", {})],
    "nncf mixed": [("int8_openvino", {"preset": "mixed"})],
    "nncf performance": [("int8_openvino", {"preset": "performance"})],
    "nncf mixed, slow bias": [("int8_openvino", {"preset": "mixed", "fast_bias": False})],
    **{
        f"onnxruntime int8 {activation} {method}{'' if per_channel else ' per tensor'}": [
            ("int8_static", {"activation": activation, "calibration": method, "per_channel": per_channel})
        ]
        for activation in ("u8", "s8")
        for method in ("minmax", "percentile")
        for per_channel in (True, False)
    },
}
THREADS = (None, 1)
"""All cores, then one."""
QUICK = ("eager, allocator", "onnxruntime")


def points() -> dict[str, Steps]:
    """Every point of the grid by name; the plain baseline is not one of them."""
    found: dict[str, Steps] = {}
    for count in THREADS:
        for name, steps in BASES.items():
            if count is not None:
                found[f"{name}, {count} thread"] = [*steps, ("threads", {"threads": count})]
            elif steps:
                found[name] = steps
    return found
