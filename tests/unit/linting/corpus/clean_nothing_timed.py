"""Reads a clock, times nothing: a deadline and a date in a file's name."""

import time
from datetime import datetime

import torch

name = f"run-{datetime.now():%Y%m%d}.pt"
deadline = time.time() + 60.0
while time.time() < deadline:
    torch.save(torch.randn(3), name)
    time.sleep(1)
