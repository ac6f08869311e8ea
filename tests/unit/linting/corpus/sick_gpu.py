"""A GPU that nobody waits for, with copies and prints between the reads of the clock."""

from time import perf_counter as now

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1))

    def forward(self, x):
        return self.layers(x)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net().to(device)
inputs = [torch.randn(4, 64) for _ in range(200)]
with torch.no_grad():
    net(inputs[0].to(device))

times = []
for x in inputs:
    t0 = now()  # mistake: no-synchronisation, grad-on, train-mode
    batch = x.to(device)  # mistake: copy-inside
    out = net(batch)
    print(out.shape)  # mistake: printing-inside
    t1 = now()
    times.append(t1 - t0)
times.sort()
