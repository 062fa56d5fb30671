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
 * Orders that results depend on (docs/payloads.md): P is summed over panels of panel_columns(rank) columns,
 * each summed in 16 lanes; Q over panels of 64 rows, each summed row by row. Nothing else changes a bit,
 * neither how rows and columns are shared out nor the width of a register. */
#include "compress/powersgd.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compress/load.h"

#define PANEL_FLOATS 4096u /* of a turned piece: half of a nearest cache */
#define BLOCK_ROWS   64u   /* rows for which a piece is turned once, and rows of a panel of Q */
#define COLLECT_ROWS 8u    /* rows that are collected at once */
#define SAMPLED      16u   /* one row in so many is looked at for its energy */

/* Rows of a turned piece begin a cache line apart from where they would share a set of the cache. */
#define APART       MATRIX_LANES
#define TURNED_MAX  (PANEL_FLOATS + POWERSGD_RANK_MAX * APART)
#define COLUMNS_MAX (PANEL_FLOATS / MATRIX_GROUP)

static uint32_t pad_rank(uint32_t rank)
{
    return (rank + MATRIX_GROUP - 1) / MATRIX_GROUP * MATRIX_GROUP;
}

/* Columns of which a turned piece fits: a multiple of 16, the same for all. */
static size_t panel_columns(uint32_t rank)
{
    return PANEL_FLOATS / pad_rank(rank) / MATRIX_LANES * MATRIX_LANES;
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

/* Columns [from, from + count) of a factor; zeros up to a multiple of 16 columns and of four numbers. */
static struct turned turn(const float *factor, uint32_t rank, size_t from, size_t count, float *scratch)
{
    struct turned turned = {scratch, pad(count) + APART, pad_rank(rank)};
    const float *at = factor + from * rank;
    for (uint32_t k = 0; k < turned.rank; k++) {
        float *row = scratch + k * turned.stride;
        size_t filled = k < rank ? count : 0;
        for (size_t j = 0; j < filled; j++)
            row[j] = at[j * rank + k];
        memset(row + filled, 0, (turned.stride - filled) * sizeof *row);
    }
    return turned;
}

/* Rows [from, to) of a factor, divided; zeros up to a multiple of four numbers. */
static void pad_rows(const float *factor, uint32_t rank, size_t from, size_t to, float divisor,
                     float *scratch)
{
    for (uint32_t padded = pad_rank(rank); from < to; from++, scratch += padded)
        for (uint32_t k = 0; k < padded; k++)
            scratch[k] = k < rank ? factor[from * rank + k] / divisor : 0;
}

static enum hearth_dtype residual_type(enum hearth_dtype dtype)
{
    return dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32;
}

/* The energy of rows [from, to): of those that are sampled. */
static double energy_of(const struct matrix *m, const void *residual, enum hearth_dtype dtype, size_t from,
                        size_t to)
{
    double sum = 0;
    for (size_t i = (from + SAMPLED - 1) / SAMPLED * SAMPLED; i < to; i += SAMPLED)
        sum += squares(dtype, residual, i * m->columns, m->columns);
    return sum;
}

/* ---- M and P ------------------------------------------------------------------------------------------- */

/* Rows and columns of M. */
struct matrix_block {
    size_t row, row_end, column, count, ahead;
};

/* A part of a row: where it begins, and how far behind it the next one does (0: there is none). */
struct matrix_place {
    size_t offset, count, ahead;
};

/* A part of a row of f32 or 16 bits; those are widened in a scratch. */
static void load_row(const struct kernels *kernels, const struct feed *feed, const struct matrix_place *place,
                     const struct turned *q, float *sum)
{
    size_t offset = place->offset, count = place->count;
    float wide[COLUMNS_MAX];
    struct row_in row = {
        .x = wide,
        .e = feed->e ? (const float *)feed->e + offset : NULL,
        .m = (float *)feed->e_new + offset,
        .gain = feed->gain,
        .far = feed->e != feed->e_new,
        .ahead = place->ahead,
    };
    if (feed->dtype == HEARTH_F32)
        row.x = (const float *)feed->x + offset;
    else
        kernels->widen(feed->dtype, wide, (const uint8_t *)feed->x + offset * sizeof(uint16_t), count);
    kernels->matrix->load(&row, q, count, sum);
}

/* The same of f64. */
static void load_row_f64(const struct kernels *kernels, const struct feed *feed,
                         const struct matrix_place *place, const struct turned *q, float *sum)
{
    size_t offset = place->offset, count = place->count;
    float acc[COLUMNS_MAX];
    const struct row_in row = {.x = acc, .m = acc, .gain = 1};
    load_block(kernels, feed, offset, count, acc);
    kernels->matrix->load(&row, q, count, sum);
    stream_block(kernels, feed, offset, count, acc);
}

static bool all_finite(const float *x, uint32_t count)
{
    float sum = 0;
    for (uint32_t k = 0; k < count; k++)
        sum += x[k] * 0.0f;
    return sum == 0;
}

/* The products of a number that is not finite are not finite either, even with zero. So M is looked at only
 * where P is not; it may be too large for P alone. */
static bool load_rows(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                      const struct factors *factors, const struct matrix_block *b)
{
    float turned[TURNED_MAX], acc[COLUMNS_MAX], sum[POWERSGD_RANK_MAX];
    const struct turned q = turn(factors->q, m->rank, b->column, b->count, turned);
    bool good = true;
    for (size_t i = b->row; i < b->row_end; i++) {
        const struct matrix_place place = {i * m->columns + b->column, b->count,
                                           i + 1 < b->row_end ? m->columns : 0};
        float *p = factors->p + i * m->rank;
        memset(sum, 0, sizeof sum);
        if (feed->dtype == HEARTH_F64)
            load_row_f64(kernels, feed, &place, &q, sum);
        else
            load_row(kernels, feed, &place, &q, sum);
        if (!all_finite(sum, m->rank)) {
            const struct feed again = {.dtype = residual_type(feed->dtype), .x = feed->e_new, .gain = 1};
            good &= load_block(kernels, &again, place.offset, b->count, acc) <= FINITE_MAX;
        }
        for (uint32_t k = 0; k < m->rank; k++)
            p[k] += sum[k];
    }
    return good;
}

/* M alone. */
static bool load_plain(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                       size_t from, size_t to)
{
    float acc[COLUMNS_MAX];
    uint32_t largest = 0;
    for (size_t at = from * m->columns, end = to * m->columns, count; at < end; at += count) {
        count = lesser(end - at, COLUMNS_MAX);
        uint32_t bits = load_block(kernels, feed, at, count, acc);
        largest = bits > largest ? bits : largest;
        stream_block(kernels, feed, at, count, acc);
    }
    kernels->stream_end();
    return largest <= FINITE_MAX;
}

int powersgd_load(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                  const struct factors *factors, size_t from, size_t to)
{
    assert(feed->e_new && from <= to && to <= m->rows && m->rank <= POWERSGD_RANK_MAX);
    struct matrix_block b = {.row = factors->q ? from : to};
    bool good = true;
    if (!factors->q)
        good = load_plain(m, kernels, feed, from, to);
    else
        memset(factors->p + from * m->rank, 0, (to - from) * m->rank * sizeof(float));
    for (; b.row < to; b.row = b.row_end) {
        b.row_end = b.row + lesser(to - b.row, BLOCK_ROWS);
        for (b.column = 0; b.column < m->columns; b.column += b.count) {
            b.count = lesser(m->columns - b.column, panel_columns(m->rank));
            good &= load_rows(m, kernels, feed, factors, &b);
        }
    }
    kernels->matrix->settle();
    if (feed->energy)
        feed->energy->before += energy_of(m, feed->e_new, feed->dtype, from, to);
    return good ? HEARTH_OK : HEARTH_POISONED;
}

/* ---- Q ------------------------------------------------------------------------------------------------- */

/* A few rows as f32, the count of columns a multiple of 16: where they are, or else in the scratch. */
static struct rows rows_of(const struct matrix *m, const struct feed *feed, const struct matrix_block *b,
                           float *scratch)
{
    size_t stride = pad(b->count), offset = b->row * m->columns + b->column;
    size_t count = b->row_end - b->row;
    if (feed->dtype != HEARTH_F64 && stride == b->count)
        return (struct rows){(const float *)feed->e_new + offset, m->columns, count, b->ahead};
    for (size_t i = 0; i < count; i++, offset += m->columns) {
        float *row = scratch + i * stride;
        memset(row + b->count, 0, (stride - b->count) * sizeof *row);
        if (feed->dtype != HEARTH_F64)
            memcpy(row, (const float *)feed->e_new + offset, b->count * sizeof *row);
        else
            for (size_t j = 0; j < b->count; j++)
                row[j] = (float)((const double *)feed->e_new)[offset + j];
    }
    return (struct rows){scratch, stride, count, 0};
}

/* The columns of a block, over all rows. */
static void project_columns(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                            const struct factors *factors, struct matrix_block *b)
{
    float sum[TURNED_MAX], scratch[COLLECT_ROWS * COLUMNS_MAX], p[BLOCK_ROWS * POWERSGD_RANK_MAX];
    size_t padded = pad(b->count), stride = padded + APART;
    uint32_t rank = pad_rank(m->rank);
    float *q = factors->q + b->column * m->rank;
    memset(q, 0, b->count * m->rank * sizeof *q);
    for (size_t panel = 0; panel < m->rows; panel += BLOCK_ROWS) {
        size_t end = panel + lesser(m->rows - panel, BLOCK_ROWS);
        pad_rows(factors->p, m->rank, panel, end, 1, p);
        memset(sum, 0, stride * rank * sizeof *sum);
        for (b->row = panel; b->row < end; b->row = b->row_end) {
            b->row_end = b->row + lesser(end - b->row, COLLECT_ROWS);
            b->ahead = b->row_end + COLLECT_ROWS <= m->rows ? COLLECT_ROWS * m->columns : 0;
            struct rows rows = rows_of(m, feed, b, scratch);
            kernels->matrix->collect(&rows, p + (b->row - panel) * rank, rank, padded, sum, stride);
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
    struct matrix_block b = {.column = from};
    for (; b.column < to; b.column += b.count) {
        b.count = lesser(to - b.column, panel_columns(m->rank));
        if (b.count > MATRIX_LANES) /* a rest goes by itself: only that needs the scratch */
            b.count -= b.count % MATRIX_LANES;
        project_columns(m, kernels, feed, factors, &b);
    }
}

/* ---- the result ---------------------------------------------------------------------------------------- */

/* One product of rows of a block with columns of a block, added to the residual or put to `out`. */
struct product {
    const struct powersgd_end *end;
    struct turned q;
    float p[BLOCK_ROWS * POWERSGD_RANK_MAX];
    bool add;
};

/* A row through a scratch, from where it is converted. `row`: number in the block. */
static void expand_converted(const struct kernels *kernels, const struct product *product, size_t row,
                             size_t offset, size_t count)
{
    const struct powersgd_end *end = product->end;
    const float *p = product->p + row * product->q.rank;
    float scratch[COLUMNS_MAX];
    const struct rows_out rows = {.p = {p, p}, .target = {scratch, scratch}};
    kernels->matrix->expand(&rows, &product->q, count);
    if (!product->add) {
        put_block(kernels, end->dtype, end->out, offset, count, scratch);
        return;
    }
    double *residual = (double *)end->residual + offset;
    for (size_t j = 0; j < count; j++)
        residual[j] += (double)scratch[j];
}

/* Two rows at a time where nothing is to be converted. */
static void expand_block(const struct matrix *m, const struct kernels *kernels, const struct product *product,
                         const struct matrix_block *b)
{
    const struct powersgd_end *end = product->end;
    bool direct = (product->add ? residual_type(end->dtype) : end->dtype) == HEARTH_F32;
    for (size_t i = b->row; i < b->row_end; i += direct ? 2 : 1) {
        size_t offset = i * m->columns + b->column, row = i - b->row;
        if (!direct) {
            expand_converted(kernels, product, row, offset, b->count);
            continue;
        }
        size_t second = i + 1 < b->row_end ? 1 : 0;
        float *target = (float *)(product->add ? end->residual : end->out) + offset;
        const struct rows_out rows = {
            .p = {product->p + row * product->q.rank, product->p + (row + second) * product->q.rank},
            .target = {target, target + second * m->columns},
            .add = product->add,
            .far = !product->add,
            .ahead = i + 3 < b->row_end ? 2 * m->columns : 0,
        };
        kernels->matrix->expand(&rows, &product->q, b->count);
    }
}

/* Infinite if one of them is not finite. */
static double largest_of(const float *x, size_t count, size_t stride)
{
    double largest = 0;
    bool finite = true;
    for (size_t i = 0; i < count; i++) {
        double magnitude = fabs((double)x[i * stride]);
        finite = finite && magnitude < HUGE_VAL;
        largest = magnitude > largest ? magnitude : largest;
    }
    return finite ? largest : HUGE_VAL;
}

/* Whether all products are finite. Mostly the largest numbers of both factors show it; else by looking. */
static bool product_finite(const struct kernels *kernels, const struct product *product, size_t rows,
                           size_t count)
{
    const struct turned *q = &product->q;
    float scratch[COLUMNS_MAX];
    double bound = 0;
    uint32_t largest = 0;
    for (uint32_t k = 0; k < q->rank; k++)
        bound += largest_of(product->p + k, rows, q->rank) * largest_of(q->at + k * q->stride, count, 1);
    if (bound < 0x1p127)
        return true;
    for (size_t i = 0; i < rows; i++) {
        const float *p = product->p + i * q->rank;
        const struct rows_out out = {.p = {p, p}, .target = {scratch, scratch}};
        kernels->matrix->expand(&out, q, count);
        uint32_t bits = kernels->quant->largest(scratch, count);
        largest = bits > largest ? bits : largest;
    }
    return largest <= FINITE_MAX;
}

static bool finish_block(const struct matrix *m, const struct kernels *kernels,
                         const struct powersgd_end *end, const struct matrix_block *b)
{
    float turned[TURNED_MAX];
    struct product product;
    product.end = end;
    product.add = false;
    pad_rows(end->p_sum, m->rank, b->row, b->row_end, end->divisor, product.p);
    product.q = turn(end->q_sum, m->rank, b->column, b->count, turned);
    expand_block(m, kernels, &product, b);
    bool good = product_finite(kernels, &product, b->row_end - b->row, b->count);
    if (!end->q_own)
        return good;
    product.add = true;
    pad_rows(end->p_own, m->rank, b->row, b->row_end, -1, product.p);
    product.q = turn(end->q_own, m->rank, b->column, b->count, turned);
    expand_block(m, kernels, &product, b);
    return good;
}

int powersgd_finish(const struct matrix *m, const struct kernels *kernels, const struct powersgd_end *end,
                    size_t from, size_t to)
{
    assert(from <= to && to <= m->rows && m->rank <= POWERSGD_RANK_MAX);
    struct matrix_block b = {.row = from};
    bool good = true;
    for (; b.row < to; b.row = b.row_end) {
        b.row_end = b.row + lesser(to - b.row, BLOCK_ROWS);
        for (b.column = 0; b.column < m->columns; b.column += b.count) {
            b.count = lesser(m->columns - b.column, panel_columns(m->rank));
            good &= finish_block(m, kernels, end, &b);
        }
    }
    kernels->matrix->settle();
    if (end->energy)
        end->energy->after += energy_of(m, end->residual, end->dtype, from, to);
    return good ? HEARTH_OK : HEARTH_POISONED;
}
