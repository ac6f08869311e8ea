"""One runtime a file, named as the target is: workers load only their own.

torch          eager modules and exported programs; torch.compile
aotinductor    packages compiled ahead of time
onnxruntime    ONNX graphs
openvino       OpenVINO IR

Modules that begin with an underscore hold what several targets share.
"""
