/* SPDX-License-Identifier: Apache-2.0 */
/* What a list of measured times says, and what buffers hold. */
#include "cli/shared/stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/kernel.h"

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

/* ---- buffers ---- */

/* The kernels narrow from f32 to f32, f16 and bf16, and from f64 to all others. */
void pattern_encode(enum hearth_dtype dtype, double value, void *element)
{
    const struct kernels *scalar = kernels_named("scalar");
    float single = (float)value;
    bool from_single = dtype == HEARTH_F32 || dtype == HEARTH_F16 || dtype == HEARTH_BF16;
    scalar->narrow(dtype, element, from_single ? (const void *)&single : (const void *)&value, 1);
}

/* What is there is copied behind itself: the distance doubles, so the copies are few and long. */
void pattern_fill(void *buffer, size_t len, const void *block, size_t block_len)
{
    uint8_t *bytes = buffer;
    size_t done = len < block_len ? len : block_len;
    memcpy(bytes, block, done);
    while (done < len) {
        size_t more = done < len - done ? done : len - done;
        memcpy(bytes + done, bytes, more);
        done += more;
    }
}

/* A buffer is periodic if it equals itself one period later. */
bool pattern_holds(const void *buffer, size_t len, const void *block, size_t block_len)
{
    const uint8_t *bytes = buffer;
    if (len <= block_len)
        return memcmp(bytes, block, len) == 0;
    return memcmp(bytes, block, block_len) == 0 && memcmp(bytes, bytes + block_len, len - block_len) == 0;
}
