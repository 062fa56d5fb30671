/* SPDX-License-Identifier: Apache-2.0 */
/* The products of powersgd, in blocks that stay in the nearest cache.
 *
 * A step passes over memory three times: load reads x and e and writes M, project reads M, finish reads M and
 * writes the residual and the result. In between all is done in pieces of a row, in a scratch.
 *
 * Factors lie row by row, but products want a register full of columns of one k. So a piece of Q is turned
 * once for a block of rows:
 *
 *          c columns        turned: k rows of c, which stay in the cache
 *        +-----------+
 *     64 | x + e = M | ---> one row after the other: its dot products with them, added to P
 *   rows +-----------+
 *
 * Orders that results depend on (docs/wire.md): P is summed over panels of panel_columns(rank) columns, each
 * summed in 16 lanes; Q over panels of 64 rows, each summed row by row. Nothing else changes a bit, neither
 * how rows and columns are shared out nor the width of a register. */
#include "compress/powersgd.h"

#include <assert.h>
#include <string.h>

#include "compress/load.h"

#define TURNED_MAX   8192u /* floats of a turned piece: a nearest cache */
#define BLOCK_ROWS   64u   /* rows for which a piece is turned once */
#define PANEL_ROWS   64u   /* rows whose products are summed before they are added to Q */
#define COLLECT_ROWS 8u    /* rows that are collected at once */
#define CHUNK_MAX    1024u /* columns that are collected at once */
#define SAMPLED      16u   /* one row in so many is looked at for its energy */

/* Columns of which a turned piece fits: a multiple of 16, the same for all. */
static size_t panel_columns(uint32_t rank)
{
    uint32_t padded = (rank + 3) / 4 * 4;
    return TURNED_MAX / padded / MATRIX_LANES * MATRIX_LANES;
}

static size_t pad(size_t count)
{
    return (count + MATRIX_LANES - 1) / MATRIX_LANES * MATRIX_LANES;
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool powersgd_pays(const struct matrix *m)
{
    return 2.0 * m->rank * ((double)m->rows + (double)m->columns) < (double)m->rows * (double)m->columns;
}

uint32_t powersgd_rank(const struct codec *codec, size_t rows, size_t columns)
{
    size_t least = lesser(rows, columns);
    return least < codec->rank ? (uint32_t)least : codec->rank;
}

/* Columns [from, from + count) of a factor; zeros up to a multiple of 16. */
static struct turned turn(const float *factor, uint32_t rank, size_t from, size_t count, float *scratch)
{
    size_t stride = pad(count);
    const float *at = factor + from * rank;
    for (uint32_t k = 0; k < rank; k++) {
        float *row = scratch + k * stride;
        for (size_t j = 0; j < count; j++)
            row[j] = at[j * rank + k];
        for (size_t j = count; j < stride; j++)
            row[j] = 0;
    }
    return (struct turned){scratch, stride, rank};
}

static double square_sum(const float *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* ---- M and P ------------------------------------------------------------------------------------------- */

/* Rows and columns of M. */
struct block {
    size_t row, row_end, column, count;
};

static uint32_t load_rows(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                          const struct factors *factors, const struct block *b)
{
    float turned[TURNED_MAX], acc[TURNED_MAX / 4];
    struct turned q = {.rank = 0};
    uint32_t largest = 0;
    if (factors->q != NULL)
        q = turn(factors->q, m->rank, b->column, b->count, turned);
    for (size_t i = b->row; i < b->row_end; i++) {
        size_t offset = i * m->columns + b->column;
        uint32_t bits = load_block(kernels, feed, offset, b->count, acc);
        largest = bits > largest ? bits : largest;
        if (feed->energy != NULL && i % SAMPLED == 0)
            feed->energy->before += square_sum(acc, b->count);
        if (q.rank > 0) {
            memset(acc + b->count, 0, (q.stride - b->count) * sizeof *acc);
            kernels->matrix->dot(acc, &q, q.stride, factors->p + i * m->rank);
        }
        store_block(kernels, feed, offset, b->count, acc);
    }
    return largest;
}

int powersgd_load(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                  const struct factors *factors, size_t from, size_t to)
{
    assert(feed->e_new != NULL && from <= to && to <= m->rows && m->rank <= POWERSGD_RANK_MAX);
    struct block b = {.row = from};
    uint32_t largest = 0;
    if (factors->q != NULL)
        memset(factors->p + from * m->rank, 0, (to - from) * m->rank * sizeof(float));
    for (; b.row < to; b.row = b.row_end) {
        b.row_end = b.row + lesser(to - b.row, BLOCK_ROWS);
        for (b.column = 0; b.column < m->columns; b.column += b.count) {
            b.count = lesser(m->columns - b.column, panel_columns(m->rank));
            uint32_t bits = load_rows(m, kernels, feed, factors, &b);
            largest = bits > largest ? bits : largest;
        }
    }
    return largest > FINITE_MAX ? HEARTH_POISONED : HEARTH_OK;
}

/* ---- Q ------------------------------------------------------------------------------------------------- */

/* A few rows as f32, the count of columns a multiple of 16: where they are, or else in the scratch. */
static struct rows rows_of(const struct matrix *m, const struct feed *feed, const struct block *b,
                           float *scratch)
{
    size_t stride = pad(b->count), offset = b->row * m->columns + b->column;
    size_t count = b->row_end - b->row;
    if (feed->dtype != HEARTH_F64 && stride == b->count)
        return (struct rows){(const float *)feed->e_new + offset, m->columns, count};
    for (size_t i = 0; i < count; i++, offset += m->columns) {
        float *row = scratch + i * stride;
        memset(row + b->count, 0, (stride - b->count) * sizeof *row);
        if (feed->dtype != HEARTH_F64)
            memcpy(row, (const float *)feed->e_new + offset, b->count * sizeof *row);
        else
            for (size_t j = 0; j < b->count; j++)
                row[j] = (float)((const double *)feed->e_new)[offset + j];
    }
    return (struct rows){scratch, stride, count};
}

/* The columns of a block, over all rows. */
static void project_columns(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                            const struct factors *factors, struct block *b)
{
    float sum[TURNED_MAX], scratch[COLLECT_ROWS * CHUNK_MAX];
    size_t stride = pad(b->count);
    float *q = factors->q + b->column * m->rank;
    memset(q, 0, b->count * m->rank * sizeof *q);
    for (size_t panel = 0; panel < m->rows; panel += PANEL_ROWS) {
        size_t end = panel + lesser(m->rows - panel, PANEL_ROWS);
        memset(sum, 0, stride * m->rank * sizeof *sum);
        for (b->row = panel; b->row < end; b->row = b->row_end) {
            b->row_end = b->row + lesser(end - b->row, COLLECT_ROWS);
            struct rows rows = rows_of(m, feed, b, scratch);
            kernels->matrix->collect(&rows, factors->p + b->row * m->rank, m->rank, stride, sum);
        }
        for (uint32_t k = 0; k < m->rank; k++)
            for (size_t j = 0; j < b->count; j++)
                q[j * m->rank + k] += sum[k * stride + j];
    }
}

void powersgd_project(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                      const struct factors *factors, size_t from, size_t to)
{
    assert(from <= to && to <= m->columns && m->rank <= POWERSGD_RANK_MAX);
    size_t chunk = lesser(panel_columns(m->rank), CHUNK_MAX);
    struct block b = {.column = from};
    for (; b.column < to; b.column += b.count) {
        b.count = lesser(to - b.column, chunk);
        if (b.count > MATRIX_LANES) /* a rest goes by itself: only that needs the scratch */
            b.count -= b.count % MATRIX_LANES;
        project_columns(m, kernels, feed, factors, &b);
    }
}

/* ---- the result ---------------------------------------------------------------------------------------- */

static void take_away(const struct kernels *kernels, const struct powersgd_end *end, size_t offset,
                      size_t count, const float *negative)
{
    if (end->dtype != HEARTH_F64) {
        float *residual = (float *)end->residual + offset;
        kernels->reduce[HEARTH_F32][KERNEL_SUM](residual, residual, negative, count);
        return;
    }
    double *residual = (double *)end->residual + offset;
    for (size_t j = 0; j < count; j++)
        residual[j] += (double)negative[j];
}

static double residual_square(const struct powersgd_end *end, size_t offset, size_t count)
{
    double sum = 0;
    if (end->dtype != HEARTH_F64)
        return square_sum((const float *)end->residual + offset, count);
    for (const double *x = (const double *)end->residual + offset; count > 0; count--, x++)
        sum += *x * *x;
    return sum;
}

static uint32_t finish_rows(const struct matrix *m, const struct kernels *kernels,
                            const struct powersgd_end *end, const struct block *b)
{
    float turned_sum[TURNED_MAX / 2], turned_own[TURNED_MAX / 2], t[TURNED_MAX / 8], p[POWERSGD_RANK_MAX];
    struct turned q_sum = turn(end->q_sum, m->rank, b->column, b->count, turned_sum), q_own = {.rank = 0};
    uint32_t largest = 0;
    if (end->q_own != NULL)
        q_own = turn(end->q_own, m->rank, b->column, b->count, turned_own);
    for (size_t i = b->row; i < b->row_end; i++) {
        size_t offset = i * m->columns + b->column;
        for (uint32_t k = 0; k < m->rank; k++)
            p[k] = end->p_sum[i * m->rank + k] / end->divisor;
        kernels->matrix->expand(&q_sum, p, q_sum.stride, t);
        uint32_t bits = largest_bits(kernels, t, b->count);
        largest = bits > largest ? bits : largest;
        put_block(kernels, end->dtype, end->out, offset, b->count, t);
        if (q_own.rank == 0)
            continue;
        for (uint32_t k = 0; k < m->rank; k++)
            p[k] = -end->p_own[i * m->rank + k];
        kernels->matrix->expand(&q_own, p, q_own.stride, t);
        take_away(kernels, end, offset, b->count, t);
        if (end->energy != NULL && i % SAMPLED == 0)
            end->energy->after += residual_square(end, offset, b->count);
    }
    return largest;
}

int powersgd_finish(const struct matrix *m, const struct kernels *kernels, const struct powersgd_end *end,
                    size_t from, size_t to)
{
    assert(from <= to && to <= m->rows && m->rank <= POWERSGD_RANK_MAX);
    size_t chunk = panel_columns(m->rank) / 2 / MATRIX_LANES * MATRIX_LANES;
    struct block b = {.row = from};
    uint32_t largest = 0;
    for (; b.row < to; b.row = b.row_end) {
        b.row_end = b.row + lesser(to - b.row, BLOCK_ROWS);
        for (b.column = 0; b.column < m->columns; b.column += b.count) {
            b.count = lesser(m->columns - b.column, chunk);
            uint32_t bits = finish_rows(m, kernels, end, &b);
            largest = bits > largest ? bits : largest;
        }
    }
    return largest > FINITE_MAX ? HEARTH_POISONED : HEARTH_OK;
}
