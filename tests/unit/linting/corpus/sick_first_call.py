"""The commonest one: one call, of a model that never ran, by the time of day."""

import time

import torch

model = torch.nn.Linear(512, 512)
x = torch.randn(8, 512)

start = time.time()  # mistake: wall-clock, no-warm-up, few-samples, grad-on, train-mode
y = model(x)
print("took", time.time() - start)
