/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that selections are tried on, and the naive selection that all others are compared with. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/codec.h"
#include "kernel/kernel.h"

#define SETS_MAX 3

/* The sets of kernels that run here; scalar is the first. */
extern const struct kernels *sets[SETS_MAX];
extern int set_count;

struct codec codec_of(const char *text); /* the only one that it names */

enum numbers {
    NUMBERS_GAUSS,
    NUMBERS_FEW,     /* five different ones: ties everywhere */
    NUMBERS_ZERO,    /* both zeros */
    NUMBERS_EQUAL,   /* one magnitude, both signs */
    NUMBERS_SMALL,   /* subnormals */
    NUMBERS_WIDE,    /* all exponents */
    NUMBERS_RISING,  /* each larger than the one before */
    NUMBERS_FALLING, /* each smaller */
    NUMBERS_SPARSE,  /* nearly all 0 */
    NUMBERS_BURST,   /* the large ones stand together */
    NUMBERS_KINDS
};

void numbers_fill(enum numbers kind, uint64_t seed, float *x, size_t count);

uint32_t magnitude_of(float x);
/* The indices of the `keep` largest by sorting: magnitude, then the lowest index. Ascending. */
void numbers_largest(const float *x, size_t count, size_t keep, uint32_t *index);
