"""The twin of sick_timeit: repeated, and the best and the rest are shown."""

import timeit

import numpy as np

a = np.ones((512, 512))


def product():
    return a @ a


print(sorted(timeit.repeat(product, number=10, repeat=7)))
print(timeit.repeat("np.sort(a)", globals=globals(), number=100))
