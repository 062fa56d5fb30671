/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on tall and thin matrices, in pieces that fit into the nearest cache. The rules of kernel.h
 * hold: no contraction, canonical NaNs (but where it says so), the bits of matrix_scalar.c in every set. So
 * each sum has one order, which does not depend on the width of a register.
 *
 * A factor's numbers are worked on by fours: the caller pads with zeros to a rank that is a multiple of
 * MATRIX_GROUP, and turned pieces to a multiple of MATRIX_LANES columns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MATRIX_LANES      16u
#define MATRIX_GROUP      4u
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
    size_t ahead;         /* of each row: this many floats behind it there is memory that is needed soon */
};

/* A piece of a row on its way in: m = gain * x + e. m may be x or e, or overlaps neither. */
struct row_in {
    const float *x, *e; /* e NULL: zeros */
    float *m;
    float gain;
    bool far;     /* m goes past the caches, where the processor can do that */
    size_t ahead; /* of x and e */
};

/* Pieces of two rows on their way out. */
struct rows_out {
    const float *p[2];
    float *target[2]; /* the same twice: one row */
    bool add;         /* target += product; else target = product */
    bool far;         /* goes past the caches; not with add */
    size_t ahead;     /* of the targets, with add */
};

struct matrix_kernels {
    /* m[j] = gain * x[j] + e[j]; sum[k] += what m[j] * q(k, j) give together; over j < count. Lane l of 16
     * adds those with j mod 16 = l, ascending, from 0; then the upper half of the lanes is added to the lower
     * one, four times. NaNs in m are any. If m is not finite, neither are the sums. */
    void (*load)(const struct row_in *row, const struct turned *q, size_t count, float *sum);
    /* sum[k * stride + j] += m(i, j) * p[i * rank + k], for all rows i one after the other, j < count; count
     * is a multiple of MATRIX_LANES. */
    void (*collect)(const struct rows *m, const float *p, uint32_t rank, size_t count, float *sum,
                    size_t stride);
    /* Both rows, j < count: the products p[k] * q(k, j) are added from the left in each group of four k, and
     * the groups' sums to the target, or to each other, one after the other. NaNs are any. */
    void (*expand)(const struct rows_out *rows, const struct turned *q, size_t count);
    /* What went past the caches is seen by other threads before what is written after this. */
    void (*settle)(void);
    /* Of MATRIX_GRAM_ROWS rows of `rank` columns, number i of column k at columns[k * MATRIX_GRAM_ROWS + i]:
     * gram[a * rank + b] += sum of column a times column b, a <= b. 8 lanes as in dot. */
    void (*gram)(const double *columns, uint32_t rank, double *gram);
    /* Column b becomes the sum of column a times upper[a * rank + b], over a = 0, 1 ... b in this order. */
    void (*mix)(double *columns, uint32_t rank, const double *upper);
};
