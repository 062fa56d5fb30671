/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of kernels share: the sets to test, numbers worth testing with, rounding by arithmetic. */
#pragma once

#include "kernel/element.h" /* for the bits of numbers: f32_bits, f32_from_bits... */

#define CASE_SETS_MAX 3

/* The sets that this processor has, scalar first. */
extern const struct kernels *sets[CASE_SETS_MAX];
extern int set_count;

/* The same numbers everywhere (splitmix64). */
uint64_t cases_next(uint64_t *seed);

/* Any bits, special values (zeros, infinities, NaNs, ends of ranges, ties) and tame numbers, mixed. */
void cases_fill(uint64_t *seed, enum hearth_dtype dtype, void *target, size_t count);

/* How many operations (KERNEL_SUM...) the type has: bit operations are of integers. */
int cases_ops(int dtype);

/* The type that `dtype` widens to. */
enum hearth_dtype cases_wide(enum hearth_dtype dtype);

/* What a 16-bit pattern means, by the formula of the standard. */
double f16_value(uint16_t bits);
double bf16_value(uint16_t bits);

/* The pattern nearest to x, ties to the even one; by search among the values of all patterns. */
uint16_t f16_nearest(double x);
uint16_t bf16_nearest(double x);
