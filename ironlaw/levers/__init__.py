"""One optimisation a file: found by a walk, never listed, never importing each other.

data        is the work necessary: batch
algorithm   can it be simpler: int8_static, int8_dynamic, int8_mixed, int8_openvino, weight_only,
            weight_only_openvino, bf16, bf16_openvino, fp16
machine     how to do it faster: threads, allocator, replicas, channels_last, clean_up, compile, aotinductor,
            runtime, runtime_options

Modules that begin with an underscore hold what several levers share.
"""
