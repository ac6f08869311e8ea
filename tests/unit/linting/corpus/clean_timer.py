"""The twin of sick_timer."""

import statistics
import time
from pathlib import Path

import torch

classifier = torch.hub.load("some/repository", "resnet50").eval()


class Timer:
    def __enter__(self):
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.start


paths = sorted(Path("images").glob("*.pt"))
images = [torch.load(path) for path in paths]
seconds = []
with torch.inference_mode():
    for image in images[:5]:
        classifier(image)
    for image in images:
        with Timer() as timer:
            classifier(image)
        seconds.append(timer.seconds)
print(statistics.quantiles(seconds))
