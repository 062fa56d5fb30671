/* SPDX-License-Identifier: Apache-2.0 */
/* What every collective must give, written as plainly as can be: elements as double or 64-bit integers, one
 * loop over the members, and a bound on the rounding error. Shares no code with the library. */
#pragma once

#include "conform/job.h"

bool dtype_is_integer(enum hearth_dtype dtype);
/* Bit operations are of integers. */
bool op_exists(enum hearth_op op, enum hearth_dtype dtype);
bool dtype_is_signed(enum hearth_dtype dtype);

/* One element. Integers are exact through get_integer (unsigned types: as their bits). */
double get_number(enum hearth_dtype dtype, const void *base, size_t index);
uint64_t get_integer(enum hearth_dtype dtype, const void *base, size_t index); /* sign-extended */
uint64_t get_bits(enum hearth_dtype dtype, const void *base, size_t index);    /* not extended */
void set_bits(enum hearth_dtype dtype, void *base, size_t index, uint64_t bits);
/* Rounds to the nearest value of the type, ties to even; integers saturate. */
void set_number(enum hearth_dtype dtype, void *base, size_t index, double value);

/* The bits of the identity of an operation. */
uint64_t identity_bits(enum hearth_dtype dtype, enum hearth_op op);

/* Fills a member's source. */
void fill_values(const struct job *job, int rank, void *base, size_t count);

/* Compares the target of one member with the reference; prints the first difference. */
bool reference_holds(const struct job *job, int rank);
