/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor and its residual become f32, and back. */
#include "compress/load.h"

#define SQUARE_LANES 8u

size_t residual_size(enum hearth_dtype dtype)
{
    return dtype == HEARTH_F64 ? sizeof(double) : sizeof(float);
}

static double sum_f64(const struct feed *feed, size_t at)
{
    double x = ((const double *)feed->x)[at];
    return feed->e ? (double)feed->gain * x + ((const double *)feed->e)[at] : (double)feed->gain * x;
}

static void load_f64(const struct feed *feed, size_t offset, size_t count, float *acc)
{
    for (size_t i = 0; i < count; i++)
        acc[i] = (float)sum_f64(feed, offset + i);
}

uint32_t load_block(const struct kernels *kernels, const struct feed *feed, size_t offset, size_t count,
                    float *acc)
{
    if (feed->dtype == HEARTH_F64) {
        load_f64(feed, offset, count, acc);
        return kernels->quant->largest(acc, count);
    }
    const float *e = feed->e ? (const float *)feed->e + offset : NULL;
    if (feed->dtype == HEARTH_F32)
        return kernels->quant->load(acc, (const float *)feed->x + offset, e, count, feed->gain);
    kernels->widen(feed->dtype, acc, (const uint8_t *)feed->x + offset * dtype_size(feed->dtype), count);
    return kernels->quant->load(acc, acc, e, count, feed->gain);
}

void stream_block(const struct kernels *kernels, const struct feed *feed, size_t offset, size_t count,
                  const float *left)
{
    if (!feed->e_new)
        return;
    if (feed->dtype != HEARTH_F64) {
        kernels->stream((float *)feed->e_new + offset, left, count * sizeof *left);
        return;
    }
    double *e_new = (double *)feed->e_new + offset;
    for (size_t i = 0; i < count; i++) {
        double acc = sum_f64(feed, offset + i);
        e_new[i] = acc - (double)(float)acc + (double)left[i];
    }
}

#define PUT_MAX 2048u /* elements that are converted at once */

void put_block(const struct kernels *kernels, enum hearth_dtype dtype, void *out, size_t offset, size_t count,
               const float *x)
{
    size_t size = dtype_size(dtype);
    uint8_t *target = (uint8_t *)out + offset * size;
    double piece[PUT_MAX]; /* room for every type */
    if (dtype == HEARTH_F32) {
        kernels->copy_far(target, x, count * size);
        return;
    }
    for (size_t n; count > 0; count -= n, x += n, target += n * size) {
        n = count < PUT_MAX ? count : PUT_MAX;
        if (dtype != HEARTH_F64)
            kernels->narrow(dtype, piece, x, n);
        else
            for (size_t i = 0; i < n; i++)
                piece[i] = (double)x[i];
        kernels->copy_far(target, piece, n * size);
    }
}

void add_left(const struct kernels *kernels, const struct feed *feed, size_t offset, size_t count,
              const float *left)
{
    if (!feed->e_new)
        return;
    if (feed->dtype != HEARTH_F64) {
        float *e_new = (float *)feed->e_new + offset;
        kernels->reduce(HEARTH_F32, KERNEL_SUM, e_new, e_new, left, count);
        return;
    }
    double *e_new = (double *)feed->e_new + offset;
    for (size_t i = 0; i < count; i++)
        e_new[i] += (double)left[i];
}

double squares(enum hearth_dtype dtype, const void *x, size_t offset, size_t count)
{
    const float *narrow = (const float *)x + offset;
    const double *wide = (const double *)x + offset;
    double lanes[SQUARE_LANES] = {0};
    size_t i = 0;
    for (; dtype == HEARTH_F64 && i < count; i++)
        lanes[i % SQUARE_LANES] += wide[i] * wide[i];
    for (; i + SQUARE_LANES <= count; i += SQUARE_LANES)
        for (size_t lane = 0; lane < SQUARE_LANES; lane++)
            lanes[lane] += (double)narrow[i + lane] * (double)narrow[i + lane];
    for (; i < count; i++)
        lanes[i % SQUARE_LANES] += (double)narrow[i] * (double)narrow[i];
    for (size_t lane = 1; lane < SQUARE_LANES; lane++)
        lanes[0] += lanes[lane];
    return lanes[0];
}
