"""The twin of sick_start_of_the_clock, over several rounds."""

import time

import torch

torch.set_grad_enabled(False)
model = torch.nn.Linear(64, 64, device="mps").eval()
x = torch.ones(1, 64, device="mps")
model(x)
torch.mps.synchronize()
rounds = []
for _ in range(10):
    start = time.perf_counter()
    for _ in range(100):
        model(x)
    torch.mps.synchronize()
    rounds.append((time.perf_counter() - start) / 100)
print(min(rounds), max(rounds))
