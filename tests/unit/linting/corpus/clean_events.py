"""The twin of sick_events, with PyTorch's own benchmark beside it."""

import torch
from torch.utils import benchmark

encoder = torch.nn.LSTM(32, 32).cuda().eval()
x = torch.zeros(10, 1, 32, device="cuda")
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)


@torch.inference_mode()
def run():
    return encoder(x)


for _ in range(5):
    run()
times = []
for _ in range(50):
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    times.append(start.elapsed_time(end))
print(sorted(times))
print(benchmark.Timer("run()", globals={"run": run}).blocked_autorange())
