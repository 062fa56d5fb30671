/* SPDX-License-Identifier: Apache-2.0 */
/* Orthonormal columns, the same bits everywhere: Cholesky's way, twice.
 *
 * A of length x rank. Its Gram matrix G = A^T A, in f64, is scaled to a diagonal of ones and taken apart,
 * G = R^T R with R upper triangular; then A R^-1 has orthonormal columns. With columns that are nearly
 * dependent (condition c) the first result is off by about c^2 2^-53; a second round leaves nothing but the
 * rounding to f32. Both rounds pass over A, which is in the cache, twice; no square root but that of the
 * diagonal, nothing that a system's mathematical library decides.
 *
 * The pivot of a column in Cholesky's scheme is the share of its square that those before it do not have.
 * Where that is below what f32 can tell from nothing, the column is drawn anew and all begins again. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "compress/powersgd.h"
#include "compress/randomk.h"
#include "core/hash.h"

#define ROWS          MATRIX_GRAM_ROWS
#define PIVOT_LEAST   0x1p-44 /* a column rounded to f32 differs from itself by 2^-24: squared, and room */
#define ATTEMPTS_MAX  16      /* one redrawn column in 10^6 fails */
#define SQUARE_LENGTH (POWERSGD_RANK_MAX * POWERSGD_RANK_MAX)

_Static_assert(POWERSGD_RANK_MAX == MATRIX_RANK_MAX, "kernels take every rank");

/* Four parts of 16 bits added: a bell shape, between -2 and 2, exact in f32. */
static float draw_normal(uint64_t key, uint64_t place)
{
    uint64_t bits = draw_bits(key, place);
    uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return (float)((int32_t)sum - 2 * 0xffff) * 0x1p-16f;
}

/* A piece of at most ROWS rows, by columns, in f64; zeros behind its end. */
static void piece_load(const float *factor, size_t count, uint32_t rank, double *columns)
{
    for (uint32_t k = 0; k < rank; k++) {
        double *column = columns + k * ROWS;
        for (size_t i = 0; i < count; i++)
            column[i] = (double)factor[i * rank + k];
        for (size_t i = count; i < ROWS; i++)
            column[i] = 0;
    }
}

static void piece_store(float *factor, size_t count, uint32_t rank, const double *columns)
{
    for (uint32_t k = 0; k < rank; k++)
        for (size_t i = 0; i < count; i++)
            factor[i * rank + k] = (float)columns[k * ROWS + i];
}

/* Over all rows, in f64: their Gram matrix into `gram`, or, with `upper`, each row times that. */
static void pass(const struct kernels *kernels, size_t length, uint32_t rank, float *factor, double *gram,
                 const double *upper)
{
    double columns[POWERSGD_RANK_MAX * ROWS];
    if (!upper)
        memset(gram, 0, (size_t)rank * rank * sizeof *gram);
    for (size_t from = 0, count; from < length; from += count) {
        count = length - from < ROWS ? length - from : ROWS;
        piece_load(factor + from * rank, count, rank, columns);
        if (!upper) {
            kernels->matrix->gram(columns, rank, gram);
            continue;
        }
        kernels->matrix->mix(columns, rank, upper);
        piece_store(factor + from * rank, count, rank, columns);
    }
}

/* G = R^T R in place, in the upper triangle, after scaling by `scale`. A column without a pivot is marked and
 * left out: it has no part in those behind it. */
static uint32_t take_apart(uint32_t rank, double *g, double *scale)
{
    uint32_t marked = 0;
    for (uint32_t b = 0; b < rank; b++) {
        double square = g[b * rank + b], pivot = 1;
        bool usable = square > 0 && square <= 0x1p1000; /* and no NaN */
        scale[b] = usable ? 1 / sqrt(square) : 0;
        for (uint32_t a = 0; a < b; a++) {
            double entry = g[a * rank + b] * scale[a] * scale[b];
            for (uint32_t c = 0; c < a; c++)
                entry -= g[c * rank + a] * g[c * rank + b];
            entry = usable && !(marked >> a & 1) ? entry / g[a * rank + a] : 0;
            g[a * rank + b] = entry;
            pivot -= entry * entry;
        }
        usable = usable && pivot > PIVOT_LEAST;
        g[b * rank + b] = usable ? sqrt(pivot) : 1;
        if (!usable)
            marked |= UINT32_C(1) << b;
    }
    return marked;
}

/* diag(scale) R^-1, column by column. */
static void invert(uint32_t rank, const double *r, const double *scale, double *inverse)
{
    for (uint32_t b = 0; b < rank; b++) {
        inverse[b * rank + b] = 1 / r[b * rank + b];
        for (uint32_t a = b; a-- > 0;) {
            double sum = 0;
            for (uint32_t c = a + 1; c <= b; c++)
                sum -= r[a * rank + c] * inverse[c * rank + b];
            inverse[a * rank + b] = sum / r[a * rank + a];
        }
    }
    for (uint32_t a = 0; a < rank; a++)
        for (uint32_t b = a; b < rank; b++)
            inverse[a * rank + b] *= scale[a];
}

static void redraw(uint64_t key, size_t length, uint32_t rank, float *factor, uint32_t marked)
{
    for (uint32_t k = 0; k < rank; k++)
        for (size_t i = 0; i < length && (marked >> k & 1); i++)
            factor[i * rank + k] = draw_normal(hash_mix(key, k + 1), i);
}

void powersgd_orthonormal(const struct kernels *kernels, uint64_t key, size_t length, uint32_t rank,
                          float *factor)
{
    double gram[SQUARE_LENGTH], inverse[SQUARE_LENGTH], scale[POWERSGD_RANK_MAX];
    assert(rank >= 1 && rank <= POWERSGD_RANK_MAX && rank <= length);
    int rounds = 0;
    for (uint64_t attempt = 1; rounds < 2 && attempt <= ATTEMPTS_MAX; attempt++) {
        pass(kernels, length, rank, factor, gram, NULL);
        uint32_t marked = take_apart(rank, gram, scale);
        if (marked != 0) {
            redraw(hash_mix(key, attempt), length, rank, factor, marked);
            rounds = 0;
            continue;
        }
        invert(rank, gram, scale, inverse);
        pass(kernels, length, rank, factor, NULL, inverse);
        rounds++;
    }
}

void powersgd_seed(const struct kernels *kernels, uint64_t key, size_t length, uint32_t rank, float *factor)
{
    for (size_t i = 0; i < length * rank; i++)
        factor[i] = draw_normal(key, i);
    powersgd_orthonormal(kernels, key, length, rank, factor);
}
