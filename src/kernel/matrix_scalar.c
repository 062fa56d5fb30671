/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of the kernels on matrices: plain loops. */
#include "kernel/element.h"
#include "kernel/matrix.h"

/* Adds the upper half to the lower one until one lane is left. */
static float tree_f32(float *lane)
{
    for (size_t half = MATRIX_LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static double tree_f64(double *lane)
{
    for (size_t half = MATRIX_GRAM_LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void dot(const float *m, const struct turned *q, size_t count, float *sum)
{
    for (uint32_t k = 0; k < q->rank; k++) {
        const float *row = q->at + k * q->stride;
        float lane[MATRIX_LANES] = {0};
        for (size_t j = 0; j < count; j++)
            lane[j % MATRIX_LANES] += m[j] * row[j];
        store_f32(sum, k, sum[k] + tree_f32(lane));
    }
}

static void collect(const struct rows *m, const float *p, uint32_t rank, size_t count, float *sum)
{
    for (uint32_t k = 0; k < rank; k++)
        for (size_t i = 0; i < m->count; i++)
            for (size_t j = 0; j < count; j++)
                store_f32(sum, k * count + j,
                          sum[k * count + j] + m->at[i * m->stride + j] * p[i * rank + k]);
}

static void expand(const struct turned *q, const float *p, size_t count, float *t)
{
    for (size_t j = 0; j < count; j++) {
        float sum = p[0] * q->at[j];
        for (uint32_t k = 1; k < q->rank; k++)
            sum += p[k] * q->at[k * q->stride + j];
        store_f32(t, j, sum);
    }
}

static void gram(const double *columns, uint32_t rank, double *product)
{
    for (uint32_t a = 0; a < rank; a++)
        for (uint32_t b = a; b < rank; b++) {
            const double *left = columns + a * MATRIX_GRAM_ROWS, *right = columns + b * MATRIX_GRAM_ROWS;
            double lane[MATRIX_GRAM_LANES] = {0};
            for (size_t i = 0; i < MATRIX_GRAM_ROWS; i++)
                lane[i % MATRIX_GRAM_LANES] += left[i] * right[i];
            store_f64(product, a * rank + b, product[a * rank + b] + tree_f64(lane));
        }
}

static void mix(double *columns, uint32_t rank, const double *upper)
{
    for (uint32_t b = rank; b-- > 0;) /* from the last: a column needs those before it as they were */
        for (size_t i = 0; i < MATRIX_GRAM_ROWS; i++) {
            double sum = columns[i] * upper[b];
            for (uint32_t a = 1; a <= b; a++)
                sum += columns[a * MATRIX_GRAM_ROWS + i] * upper[a * rank + b];
            store_f64(columns, b * MATRIX_GRAM_ROWS + i, sum);
        }
}

const struct matrix_kernels matrix_scalar = {
    .dot = dot,
    .collect = collect,
    .expand = expand,
    .gram = gram,
    .mix = mix,
};
