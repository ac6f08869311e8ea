"""The twin of sick_gpu: moved before, waited for on both sides, printed after."""

from time import perf_counter as now

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1))

    def forward(self, x):
        return self.layers(x)


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net().to(device).eval()
inputs = [torch.randn(4, 64).to(device) for _ in range(200)]

times = []
with torch.no_grad():
    for x in inputs[:10]:
        net(x)
    for x in inputs:
        sync()
        t0 = now()
        out = net(x)
        sync()
        t1 = now()
        times.append(t1 - t0)
print(out.shape, sorted(times)[len(times) // 2])
