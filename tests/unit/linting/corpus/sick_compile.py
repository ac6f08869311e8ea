"""The model was called before, but what is compiled was not."""

import time

import torch

model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
x = torch.randn(1, 16, 64)
with torch.inference_mode():
    model(x)
    model = torch.compile(model)
    samples = []
    for _ in range(20):
        start = time.perf_counter()  # mistake: compile-inside
        model(x)
        samples.append(time.perf_counter() - start)
print(sum(samples) / len(samples))  # mistake: mean-only
