"""Waits at the end only: what was queued before still runs when the clock starts."""

import time

import torch

torch.set_grad_enabled(False)
model = torch.nn.Linear(64, 64, device="mps").eval()
x = torch.ones(1, 64, device="mps")
model(x)
start = time.perf_counter()  # mistake: no-synchronisation, mean-only
for _ in range(100):
    model(x)
torch.mps.synchronize()
print((time.perf_counter() - start) / 100)
