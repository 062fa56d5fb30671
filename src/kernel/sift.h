/* SPDX-License-Identifier: Apache-2.0 */
/* What finds the largest of an array. Everything is decided by magnitudes: the bits of |x| as an integer. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MAGNITUDE_BITS UINT32_C(0x7fffffff)
#define SIFT_SLACK     8u /* entries that pick may write beyond those it finds */

/* The search for the highest magnitude that at least `keep` reach. */
struct sift_search {
    size_t keep;
    uint32_t bits;  /* that many reach, and */
    size_t count;   /* so many: at least `keep` */
    uint32_t top;   /* fewer than `keep` reach this one, namely */
    size_t above;   /* so many */
    uint32_t guess; /* where to look first, if it lies between */
    uint32_t step;  /* ends when bits and top are no further apart, or when exactly `keep` reach bits */
};

struct sift_kernels {
    /* top[j] = the number of largest magnitude, without its sign, of x[j], x[j + width], x[j + 2 * width] ...
     * for j < columns; 1 <= columns <= width, columns <= count. Gives the largest magnitude of these. */
    uint32_t (*fold)(const float *x, size_t count, size_t width, size_t columns, float *top);
    /* How many have a magnitude of at least that, which is not 0. */
    size_t (*reach)(const float *x, size_t count, uint32_t least);
    /* base + i for every i with a magnitude of at least that, ascending; gives how many. `index` has room for
     * them and SIFT_SLACK more; `least` is a magnitude. */
    size_t (*pick)(const float *x, size_t count, uint32_t least, uint32_t base, uint32_t *index);
};

extern const struct sift_kernels sift_scalar;

/* Searches by halving the range. */
void sift_climb(const struct sift_kernels *sift, const float *x, size_t count, struct sift_search *search);
