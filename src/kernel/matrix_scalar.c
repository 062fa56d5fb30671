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

static void load(const struct row_in *row, const struct turned *q, size_t count, float *sum)
{
    float lane[MATRIX_RANK_MAX][MATRIX_LANES] = {0};
    for (size_t j = 0; j < count; j++) {
        float m = row->gain * row->x[j] + (row->e ? row->e[j] : 0.0f);
        row->m[j] = m;
        for (uint32_t k = 0; k < q->rank; k++)
            lane[k][j % MATRIX_LANES] += m * q->at[k * q->stride + j];
    }
    for (uint32_t k = 0; k < q->rank; k++)
        store_f32(sum, k, sum[k] + tree_f32(lane[k]));
}

static void collect(const struct rows *m, const float *p, uint32_t rank, size_t count, float *sum,
                    size_t stride)
{
    for (uint32_t k = 0; k < rank; k++)
        for (size_t j = 0; j < count; j++) {
            float total = sum[k * stride + j];
            for (size_t i = 0; i < m->count; i++)
                total += m->at[i * m->stride + j] * p[i * rank + k];
            store_f32(sum, k * stride + j, total);
        }
}

static float product(const float *p, const struct turned *q, size_t j, uint32_t k)
{
    float sum = p[k] * q->at[k * q->stride + j];
    for (uint32_t end = k + MATRIX_GROUP; ++k < end;)
        sum += p[k] * q->at[k * q->stride + j];
    return sum;
}

static void expand(const struct rows_out *rows, const struct turned *q, size_t count)
{
    int row_count = rows->target[0] == rows->target[1] ? 1 : 2;
    for (int row = 0; row < row_count; row++)
        for (size_t j = 0; j < count; j++) {
            float *target = rows->target[row] + j, sum = product(rows->p[row], q, j, 0);
            sum = rows->add ? *target + sum : sum;
            for (uint32_t k = MATRIX_GROUP; k < q->rank; k += MATRIX_GROUP)
                sum += product(rows->p[row], q, j, k);
            *target = sum;
        }
}

static void settle(void)
{
}

static void gram(const double *columns, uint32_t rank, double *square)
{
    for (uint32_t a = 0; a < rank; a++)
        for (uint32_t b = a; b < rank; b++) {
            const double *left = columns + a * MATRIX_GRAM_ROWS, *right = columns + b * MATRIX_GRAM_ROWS;
            double lane[MATRIX_GRAM_LANES] = {0};
            for (size_t i = 0; i < MATRIX_GRAM_ROWS; i++)
                lane[i % MATRIX_GRAM_LANES] += left[i] * right[i];
            store_f64(square, a * rank + b, square[a * rank + b] + tree_f64(lane));
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
    .load = load,
    .collect = collect,
    .expand = expand,
    .settle = settle,
    .gram = gram,
    .mix = mix,
};
