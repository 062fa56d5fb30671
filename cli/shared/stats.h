/* SPDX-License-Identifier: Apache-2.0 */
/* What a list of measured times says. */
#ifndef CLI_STATS_H
#define CLI_STATS_H

#include <stddef.h>

struct stats {
    double median, p99, min, max;
    double spread; /* (90th - 10th percentile) / median */
};

/* Sorts the samples. count >= 1. */
struct stats stats_of(double *samples, size_t count);

#endif
