/* SPDX-License-Identifier: Apache-2.0 */
/* powersgd: a matrix M of rows x columns as P Q^T with P of rows x rank and Q of columns x rank, all row by
 * row. One power iteration a step, warm-started from the last Q. All sums in one fixed order, the same with
 * every set of kernels and for every number of threads: members that have the same bytes compute the same.
 *
 *   M = gain x + e;  P = M Q;  P summed over members, made orthonormal;  Q = M^T P;  Q summed;
 *   out = P Qsum^T / divisor;  e_new = M - P Q^T with the member's own Q.
 * Alternating: even steps send P' = M Q for an orthonormal Q and keep it, odd steps send Q = M^T P for an
 * orthonormal P: one sum a step. */
#pragma once

#include "compress/coder.h"
#include "core/heap.h"

#define POWERSGD_RANK_MAX 32

struct matrix {
    size_t rows, columns;
    uint32_t rank; /* <= rows and <= columns */
};

/* Whether factors are shorter than half of the matrix; else it is better sent as it is. */
bool powersgd_pays(const struct matrix *m);
/* The rank that is used: the codec's, but no more than rows or columns. */
uint32_t powersgd_rank(const struct codec *codec, size_t rows, size_t columns);

/* P of rows x rank, Q of columns x rank. */
struct factors {
    float *p, *q;
};

/* factor[length x rank]: numbers drawn from the key around 0 (docs/payloads.md), then orthonormal columns. */
void powersgd_seed(const struct kernels *kernels, uint64_t key, size_t length, uint32_t rank, float *factor);

/* Columns become orthonormal. A column that is nothing but a mix of those before it (or zero, or not finite)
 * is replaced by one drawn from the key. Same input, same output, everywhere. */
void powersgd_orthonormal(const struct kernels *kernels, uint64_t key, size_t length, uint32_t rank,
                          float *factor);

/* M = gain x + e goes to feed->e_new (never NULL; f64 for f64 tensors and computed so), and P = M Q to
 * factors->p, for rows [from, to). Q NULL: only M. Let Q be orthonormal (a warm one: the last Qsum made so),
 * then P is about as large as M and cannot overflow or vanish before it. Energy: `before`, of each 16th row.
 * HEARTH_POISONED as coder_encode. Rows may be shared out between threads. */
int MUST_CHECK powersgd_load(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                             const struct factors *factors, size_t from, size_t to);
/* Q = M^T P for columns [from, to), with M as it stands in feed->e_new and P of all rows. Nothing else of
 * feed but dtype is looked at. Columns may be shared out; cuts at multiples of 16 cost least. */
void powersgd_project(const struct matrix *m, const struct kernels *kernels, const struct feed *feed,
                      const struct factors *factors, size_t from, size_t to);
/* For rows [from, to): out = P Qsum^T / divisor in the tensor's type (P is what is divided); residual
 * (holding M) becomes M - P Qown^T (q_own NULL: not touched). For alternating steps in which P was sent, pass
 * psum for P of `out` and pown for that of the residual, with q for both Qs. HEARTH_POISONED: out is not
 * finite as f32. */
struct powersgd_end {
    const float *p_sum, *q_sum; /* out = p_sum q_sum^T / divisor */
    const float *p_own, *q_own; /* residual -= p_own q_own^T; NULL: leave it */
    void *out, *residual;
    enum hearth_dtype dtype;
    float divisor;
    struct energy *energy; /* `after`, of each 16th row; NULL: not wanted */
};
int MUST_CHECK powersgd_finish(const struct matrix *m, const struct kernels *kernels,
                               const struct powersgd_end *end, size_t from, size_t to);
