"""Levers that change the arithmetic.

int8_static      ONNX Runtime, quantise-dequantise with calibrated activations
int8_dynamic     ONNX Runtime, products only, activations quantised at run time
int8_mixed       either of these, the layers that it hurts most left in float
int8_openvino    OpenVINO, by NNCF
weight_only      ONNX Runtime, weights of linear layers in 8 or 4 bits, by groups
weight_only_openvino  the same for OpenVINO, by NNCF
bf16, fp16       half precision in torch
bf16_openvino    bfloat16 in OpenVINO, made explicit
"""
