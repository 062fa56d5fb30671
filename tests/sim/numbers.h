/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of every type as numbers: filling buffers, and a naive sum to compare with. */
#pragma once

#include "core/prng.h"
#include "core/types.h"

enum numbers_kind {
    NUMBERS_WHOLE, /* small and whole: all orders of combination give the same, in every type */
    NUMBERS_ANY
};

void numbers_fill(void *target, size_t count, enum hearth_dtype dtype, enum hearth_op op,
                  enum numbers_kind kind, struct prng *prng);
double numbers_get(const void *source, enum hearth_dtype dtype, size_t index);

/* One element's combination over members, in rank order. */
struct numbers_sum {
    enum hearth_op op;
    enum hearth_dtype dtype;
    bool exact;    /* compare to the last bit; else within what rounding allows */
    bool in_order; /* f32, f64: combined in exactly this order, so to the last bit too */
    int count;
    double value, weight; /* in f64 */
    float narrow;         /* in f32 */
};

void numbers_add(struct numbers_sum *sum, const void *source, size_t index, double weight);
double numbers_value(const struct numbers_sum *sum);
bool numbers_agree(const struct numbers_sum *sum, const void *target, size_t index);
