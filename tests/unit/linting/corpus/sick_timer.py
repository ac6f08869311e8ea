"""A context manager of one's own, around a loop that reads files and logs."""

import logging
import time
from pathlib import Path

import torch

logger = logging.getLogger(__name__)
classifier = torch.hub.load("some/repository", "resnet50").eval()


class Timer:
    def __enter__(self):
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.start


paths = sorted(Path("images").glob("*.pt"))
with Timer() as timer:  # mistake: no-warm-up, grad-on
    for path in paths:
        image = torch.load(path)  # mistake: data-inside
        label = classifier(image)
        logger.info("%s is %s", path, label)  # mistake: printing-inside
print(timer.seconds / len(paths))
