"""What a person brings: loading it, checking it, and keeping it for workers.

- ``inference``, ``training``: the records that users fill in
- ``parcel``, ``job``: a training job by value, and open in a fresh process
- ``load``: from ``file.py:name``, ``model.onnx`` or ``demo:NAME`` to a workload; ``onnxdata`` for the second
- ``source``: the user's own code: loading it, blaming the right line, carrying it by value
- ``opening``, ``eager``, ``onnxfile``, ``local``: a model as the parent runs it
- ``positional``: tensors in by position, a tensor or a tuple of tensors out
- ``rebuild``, ``batching``: between what ``evaluate`` passes and expects, and arrays of one batch size
- ``check``: looking before measuring
- ``digest``, ``snapshot``: the content address, and the folder that workers see
- ``demos``: workloads that installed packages carry
"""
