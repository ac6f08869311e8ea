"""A helper that averages five calls, makes its data inside, and is called once."""

import time

import numpy as np


def attention(q, k, v):
    return q @ k.T @ v


def run(size):
    q = np.random.rand(size, 64)  # mistake: data-inside
    return attention(q, q, q)


def benchmark(size, repeats=5):
    begin = time.perf_counter()  # mistake: no-warm-up, few-samples
    for _ in range(repeats):
        run(size)
    return (time.perf_counter() - begin) / repeats


if __name__ == "__main__":
    print(benchmark(256))
