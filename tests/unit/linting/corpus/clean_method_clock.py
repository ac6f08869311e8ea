"""The twin of sick_method_clock."""

import json
import time

import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")


class Bench:
    def run(self, feeds):
        session.run(None, feeds[0])
        samples = []
        for feed in feeds:
            self.begun = time.perf_counter_ns()
            session.run(None, feed)
            samples.append(time.perf_counter_ns() - self.begun)
        return samples


print(json.dumps(Bench().run([])))
