/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on tall and thin matrices, in pieces that fit into the nearest cache. The rules of kernel.h
 * hold: no contraction, canonical NaNs, the bits of matrix_scalar.c in every set. So each sum has one order,
 * which does not depend on the width of a register.
 *
 * All counts of columns are multiples of MATRIX_LANES: whoever calls fills up with zeros. */
#ifndef KERNEL_MATRIX_H
#define KERNEL_MATRIX_H

#include <stddef.h>
#include <stdint.h>

#define MATRIX_LANES      16u
#define MATRIX_RANK_MAX   32u
#define MATRIX_GRAM_ROWS  128u /* of a piece for gram and mix */
#define MATRIX_GRAM_LANES 8u

/* A piece of a factor, turned: number k of column j is at[k * stride + j]. */
struct turned {
    const float *at;
    size_t stride;
    uint32_t rank;
};

/* Rows of a matrix: element (i, j) is at[i * stride + j]. */
struct rows {
    const float *at;
    size_t stride, count; /* count: at least 1 */
};

struct matrix_kernels {
    /* sum[k] += what m[j] * q(k, j) give together, over j < count. Lane l of 16 adds those with j mod 16 = l,
     * ascending, from 0; then the upper half of the lanes is added to the lower one, four times. */
    void (*dot)(const float *m, const struct turned *q, size_t count, float *sum);
    /* sum[k * count + j] += m(i, j) * p[i * rank + k], for all rows i one after the other, j < count. */
    void (*collect)(const struct rows *m, const float *p, uint32_t rank, size_t count, float *sum);
    /* t[j] = p[0] * q(0, j) + p[1] * q(1, j) + ..., from the left, j < count. */
    void (*expand)(const struct turned *q, const float *p, size_t count, float *t);
    /* Of MATRIX_GRAM_ROWS rows of `rank` columns, number i of column k at columns[k * MATRIX_GRAM_ROWS + i]:
     * gram[a * rank + b] += sum of column a times column b, a <= b. 8 lanes as in dot. */
    void (*gram)(const double *columns, uint32_t rank, double *gram);
    /* Column b becomes the sum of column a times upper[a * rank + b], over a = 0, 1 ... b in this order. */
    void (*mix)(double *columns, uint32_t rank, const double *upper);
};

#endif
