/* SPDX-License-Identifier: Apache-2.0 */
/* What finds the largest of an array. Everything is decided by magnitudes: the bits of |x| as an integer. */
#ifndef KERNEL_SIFT_H
#define KERNEL_SIFT_H

#include <stddef.h>
#include <stdint.h>

#define MAGNITUDE_BITS UINT32_C(0x7fffffff)

/* A magnitude, and how many of the array are at least that. */
struct sift_level {
    uint32_t bits;
    size_t count;
};

struct sift_kernels {
    /* top[j] = the number of largest magnitude, without its sign, of x[j], x[j + width], x[j + 2 * width] ...
     * 1 <= width <= count. */
    void (*fold)(const float *x, size_t count, size_t width, float *top);
    /* From a level that at least `keep` of x reach: sets those of the bits below `first` and not below `last`
     * that can be set so that this stays true, from the highest on. Stops early where exactly `keep` reach
     * it. All these bits of the level are 0 at the start; 0 <= last <= first <= 31. */
    struct sift_level (*climb)(const float *x, size_t count, size_t keep, struct sift_level from, int first,
                               int last);
    /* Bit i of the mask, from its lowest word on: whether the magnitude of x[i] is at least that. Bits beyond
     * are 0; whole words are written. */
    void (*mask)(const float *x, size_t count, uint32_t least, uint64_t *mask);
};

extern const struct sift_kernels sift_scalar;
extern const struct sift_kernels sift_avx2; /* defined on x86-64 */
extern const struct sift_kernels sift_neon; /* defined on little-endian aarch64 */

#endif
