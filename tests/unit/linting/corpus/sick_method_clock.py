"""Reads kept in an attribute, a date for a clock, a progress bar inside."""

from datetime import datetime

import onnxruntime
from tqdm import tqdm

session = onnxruntime.InferenceSession("model.onnx")


class Bench:
    def run(self, feeds):
        self.begun = datetime.now()  # mistake: wall-clock, no-warm-up
        for feed in tqdm(feeds):  # mistake: printing-inside
            session.run(None, feed)
        return (datetime.now() - self.begun) / len(feeds)


print(Bench().run([]))
