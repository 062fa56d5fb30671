/* SPDX-License-Identifier: Apache-2.0 */
/* What a list of measured times says. */
#include "cli/shared/stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest sample that at least this share of all does not exceed. */
static double quantile(const double *sorted, size_t count, double share)
{
    size_t rank = (size_t)ceil(share * (double)count);
    return sorted[rank > 0 ? rank - 1 : 0];
}

struct stats stats_of(double *samples, size_t count)
{
    assert(count >= 1);
    qsort(samples, count, sizeof *samples, compare);
    struct stats s = {.p99 = quantile(samples, count, 0.99), .min = samples[0], .max = samples[count - 1]};
    s.median = count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
    s.spread = s.median > 0 ? (quantile(samples, count, 0.9) - quantile(samples, count, 0.1)) / s.median : 0;
    return s;
}
