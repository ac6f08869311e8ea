"""The twin of sick_compile: the compiled model runs before the clock, and the spread is told."""

import statistics
import time

import torch

model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
x = torch.randn(1, 16, 64)
with torch.inference_mode():
    model = torch.compile(model)
    model(x)
    samples = []
    for _ in range(20):
        start = time.perf_counter()
        model(x)
        samples.append(time.perf_counter() - start)
print(sum(samples) / len(samples), statistics.stdev(samples))
