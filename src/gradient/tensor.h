/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of one tensor between steps. Owned by whoever made it (compressor.c, or a single call); while
 * an operation is in flight (`busy`) only reduction.c touches it. */
#pragma once

#include <stdatomic.h>

#include "compress/sparse.h"
#include "core/heap.h"

/* powersgd's factors: Q of columns x rank and, when alternating, P of rows x rank. */
enum { FACTOR_Q, FACTOR_P, FACTOR_COUNT };

/* How to take the last step back: what it has replaced stands in the shadows until the next one. */
struct tensor_undo {
    bool there;                          /* false: nothing can be taken back */
    bool residual, factor[FACTOR_COUNT]; /* that were exchanged with their shadows */
    struct energy energy;
    uint64_t step, plain_bytes, sent_bytes;
};

struct tensor_state {
    enum hearth_dtype dtype;
    size_t count;
    size_t rows, columns; /* as a matrix; rows 0: it is none */
    void *residual;       /* `count` of f64 for f64 tensors, else of f32; NULL: all zero */
    void *shadow;         /* as long: where the next residual is written; NULL: not there yet */
    float *factor[FACTOR_COUNT], *factor_shadow[FACTOR_COUNT]; /* NULL: not there yet */
    uint32_t factor_rank;                                      /* that all of them have */
    uint64_t step; /* operations that ended well: what randomk and powersgd draw by */
    uint64_t plain_bytes, sent_bytes;
    struct energy energy;  /* of the last step */
    struct topk_hint hint; /* makes selection faster, changes nothing */
    struct tensor_undo undo;
    _Atomic(bool) busy;
    hearth_done_fn *done; /* of a plain operation in flight: the caller's, and how many take part */
    void *done_arg;
    int members;
};
