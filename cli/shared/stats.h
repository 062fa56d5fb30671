/* SPDX-License-Identifier: Apache-2.0 */
/* What a list of measured times says, and buffers that repeat a short block: quick to fill with any type,
 * quick to check to the last byte. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/types.h"

struct stats {
    double median, p99, min, max;
    double spread; /* (90th - 10th percentile) / median */
};

/* Sorts the samples. count >= 1. */
struct stats stats_of(double *samples, size_t count);

/* A number that the type can hold exactly, as an element of it. */
void pattern_encode(enum hearth_dtype dtype, double value, void *element);
/* Writes the block over and over; the last copy may be cut short. */
void pattern_fill(void *buffer, size_t len, const void *block, size_t block_len);
/* Is the buffer what pattern_fill would have made it? */
bool pattern_holds(const void *buffer, size_t len, const void *block, size_t block_len);
