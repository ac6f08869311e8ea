"""The twin of sick_first_call: warmed up, many samples, a clock that only goes forward."""

import statistics
import time

import torch

model = torch.nn.Linear(512, 512).eval()
x = torch.randn(8, 512)
samples = []
with torch.inference_mode():
    for _ in range(10):
        model(x)
    for _ in range(100):
        start = time.perf_counter()
        model(x)
        samples.append(time.perf_counter() - start)
print("median", statistics.median(samples), "s, quartiles", statistics.quantiles(samples))
