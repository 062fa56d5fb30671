/* SPDX-License-Identifier: Apache-2.0 */
/* Times of calls, as all measuring loops here take and sum them up. */
#pragma once

#include <time.h>

static inline double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Puts the times into rising order; the next functions need them so. */
void samples_sort(double *times, int count);
double samples_median(const double *times, int count);
double samples_p99(const double *times, int count);
