"""A copy that is what is measured is no mistake; nor is a cast, or a wait."""

import time

import torch

host = torch.zeros(1 << 20).pin_memory()
host.cuda()
torch.cuda.synchronize()
times = []
for _ in range(30):
    start = time.perf_counter()
    host.cuda(non_blocking=True)
    torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
print(sorted(times))
