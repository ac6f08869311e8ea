"""Events wait for the device by themselves; the rest is as wrong as ever."""

import torch

encoder = torch.nn.LSTM(32, 32).cuda()
x = torch.zeros(10, 1, 32, device="cuda")
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)

start.record()  # mistake: no-warm-up, few-samples, grad-on, train-mode
encoder(x)
end.record()
torch.cuda.synchronize()
print(start.elapsed_time(end))
