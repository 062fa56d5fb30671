/* SPDX-License-Identifier: Apache-2.0 */
/* Order, median and 99th percentile of times. */
#include "bench/peers/samples.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void samples_sort(double *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, compare);
}

double samples_median(const double *times, int count)
{
    return count % 2 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2;
}

double samples_p99(const double *times, int count)
{
    return times[(int)ceil(0.99 * count) - 1];
}
