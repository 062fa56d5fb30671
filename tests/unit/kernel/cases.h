/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of kernels share: the sets to test, numbers worth testing with, rounding by arithmetic. */
#pragma once

#include "kernel/kernel.h"

#define CASE_SETS_MAX 3

#define CASE_NAN_F32  UINT32_C(0x7fc00000)
#define CASE_NAN_F64  UINT64_C(0x7ff8000000000000)
#define CASE_NAN_F16  UINT16_C(0x7e00)
#define CASE_NAN_BF16 UINT16_C(0x7fc0)

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

/* The same bits as another type. */
uint32_t bits_of_f32(float x);
uint64_t bits_of_f64(double x);
float f32_of_bits(uint32_t bits);
double f64_of_bits(uint64_t bits);

/* What a 16-bit pattern means, by the formula of the standard. */
double f16_value(uint16_t bits);
double bf16_value(uint16_t bits);

/* The pattern nearest to x, ties to the even one; by search among the values of all patterns. */
uint16_t f16_nearest(double x);
uint16_t bf16_nearest(double x);
