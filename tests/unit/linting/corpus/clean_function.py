"""The twin of sick_function: data first, a warm-up by the caller's own name, every sample kept."""

import time

import numpy as np


def attention(q, k, v):
    return q @ k.T @ v


def benchmark(call, repeats=50):
    for _ in range(5):
        call()
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    return samples


if __name__ == "__main__":
    q = np.random.rand(256, 64)
    print(np.percentile(benchmark(lambda: attention(q, q, q)), [25, 50, 75]))
