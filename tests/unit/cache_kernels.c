/* Kernels that stream through whole buffers, for the comparison of the cache model with Valgrind's cachegrind.
   Buffers are fresh zero pages, so that nothing is touched before the kernel does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *fresh(size_t bytes) {
    float *buffer;
    if (posix_memalign((void **)&buffer, 4096, bytes)) exit(3);
    return buffer;
}

static void copy(float *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = from[i];
}

static void saxpy(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += 2.0f * x[i];
}

static float sum(const float *x, size_t n) {
    float total = 0.0f;
    for (size_t i = 0; i < n; i++) total += x[i];
    return total;
}

/* c[rows, wide] += a[rows, deep] b[deep, wide], `block` rows of b at a time. */
static void product(float *c, const float *a, const float *b, size_t rows, size_t deep, size_t wide, size_t block) {
    for (size_t start = 0; start < deep; start += block)
        for (size_t i = 0; i < rows; i++)
            for (size_t k = start; k < start + block; k++)
                for (size_t j = 0; j < wide; j++) c[i * wide + j] += a[i * deep + k] * b[k * wide + j];
}

int main(int count, char **words) {
    const char *what = words[1];
    long n[4] = {0, 0, 0, 0};
    for (int i = 2; i < count && i < 6; i++) n[i - 2] = atol(words[i]);
    float seen = 0.0f;
    if (!strcmp(what, "copy")) { /* bytes, times */
        float *from = fresh(n[0]), *to = fresh(n[0]);
        for (long t = 0; t < n[1]; t++) copy(to, from, n[0] / 4);
        seen = to[0];
    } else if (!strcmp(what, "saxpy")) { /* bytes, buffers, times: y_k += 2 x for each */
        float *x = fresh(n[0]), *y[64];
        for (long k = 0; k < n[1]; k++) y[k] = fresh(n[0]);
        for (long t = 0; t < n[2]; t++)
            for (long k = 0; k < n[1]; k++) saxpy(y[k], x, n[0] / 4);
        seen = y[0][0];
    } else if (!strcmp(what, "sweep") || !strcmp(what, "turn")) { /* bytes, buffers, times; turn goes back every second time */
        float *x[64];
        for (long k = 0; k < n[1]; k++) x[k] = fresh(n[0]);
        for (long t = 0; t < n[2]; t++)
            for (long k = 0; k < n[1]; k++) {
                long at = !strcmp(what, "turn") && t % 2 ? n[1] - 1 - k : k;
                seen += sum(x[at], n[0] / 4);
            }
    } else if (!strcmp(what, "product")) { /* rows, deep, wide, block */
        float *a = fresh(4 * n[0] * n[1]), *b = fresh(4 * n[1] * n[2]), *c = fresh(4 * n[0] * n[2]);
        product(c, a, b, n[0], n[1], n[2], n[3]);
        seen = c[0];
    }
    printf("%g\n", seen);
    return 0;
}
