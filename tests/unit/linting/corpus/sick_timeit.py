"""timeit does not save one from a single repetition, nor from a mean."""

import timeit

import numpy as np

a = np.ones((512, 512))


def product():
    return a @ a


print(timeit.timeit(product, number=3) / 3)  # mistake: no-warm-up, few-samples
print(timeit.timeit("np.sort(a)", globals=globals(), number=2000) / 2000)  # mistake: mean-only
