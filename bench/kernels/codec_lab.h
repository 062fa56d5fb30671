/* SPDX-License-Identifier: Apache-2.0 */
/* What bench_kernels measures of codecs: a tensor with all that goes with it, and the list of things
 * done to it. */
#pragma once

#include <stdatomic.h>

#include "compress/powersgd.h"
#include "compress/sparse.h"
#include "os/workers.h"

struct pair; /* select_pairs.h */

struct lab {
    const struct kernels *kernels;
    struct workers *workers; /* NULL: one thread */
    size_t count;            /* elements of the tensor */
    uint8_t *arena;
    float *x, *e, *e_new, *out;
    uint8_t *payload;
    struct sparse list;
    struct factors factors;
    struct pair *pairs; /* of the references; NULL before the first */
    struct heap heap;
    /* of the row that is at work */
    struct codec codec;
    struct topk_hint hint;
    uint64_t step;
    atomic_bool failed;
};

/* false: no memory. */
bool lab_open(struct lab *lab, const struct kernels *kernels, size_t count);
void lab_close(struct lab *lab);

enum {
    LAB_SPLIT = 1,     /* can be shared out between threads */
    LAB_DRAWS_X = 2,   /* leaves another x behind */
    LAB_REFERENCE = 4, /* what others do, to compare topk_chunk with */
    LAB_ENTRIES = 8,   /* entries in a second are of interest */
};

struct lab_row {
    const char *name, *codec;
    double target;    /* of time / memcpy's, at most; 0: none */
    double entries_m; /* of millions of entries in a second, at least; 0: none */
    double reference; /* topk_chunk is to be so many times as fast, at least */
    unsigned flags;
    void (*prepare)(struct lab *lab); /* NULL: nothing to do */
    void (*run)(struct lab *lab);
    size_t (*used)(size_t count); /* elements of the tensor that it works on; NULL: all */
};

extern const struct lab_row lab_rows[];
extern const size_t lab_row_count;

/* Makes the lab ready for the row. */
void lab_prepare(struct lab *lab, const struct lab_row *row);
/* After the row: its traces in the tensor are gone. */
void lab_restore(struct lab *lab, const struct lab_row *row);
size_t lab_used(const struct lab_row *row, size_t count);
/* Entries that the row's codec keeps of the tensor. */
size_t lab_entries(const struct lab *lab);
/* Whether one lab holds the bits that the other does. */
bool lab_equal(const struct lab *a, const struct lab *b);
