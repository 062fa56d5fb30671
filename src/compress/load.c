/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor and its residual become f32, and back. */
#include "compress/load.h"

#include <string.h>

static uint32_t magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & UINT32_C(0x7fffffff);
}

uint32_t largest_bits(const struct kernels *kernels, const float *x, size_t count)
{
    uint32_t largest = 0;
    (void)kernels;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = magnitude(x[i]);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static double sum_f64(const struct feed *feed, size_t at)
{
    double x = ((const double *)feed->x)[at];
    return feed->e != NULL ? (double)feed->gain * x + ((const double *)feed->e)[at] : (double)feed->gain * x;
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
        return largest_bits(kernels, acc, count);
    }
    const uint8_t *x = (const uint8_t *)feed->x + offset * dtype_size(feed->dtype);
    kernels->widen[feed->dtype](acc, x, count);
    if (feed->gain != 1.0f)
        kernels->multiply_f32(acc, count, feed->gain);
    if (feed->e != NULL)
        kernels->reduce[HEARTH_F32][KERNEL_SUM](acc, acc, (const float *)feed->e + offset, count);
    return largest_bits(kernels, acc, count);
}

void store_block(const struct kernels *kernels, const struct feed *feed, size_t offset, size_t count,
                 const float *left)
{
    if (feed->e_new == NULL)
        return;
    if (feed->dtype != HEARTH_F64) {
        kernels->copy_far((float *)feed->e_new + offset, left, count * sizeof *left);
        return;
    }
    double *e_new = (double *)feed->e_new + offset;
    for (size_t i = 0; i < count; i++) {
        double acc = sum_f64(feed, offset + i);
        e_new[i] = acc - (double)(float)acc + (double)left[i];
    }
}

void add_left(const struct kernels *kernels, const struct feed *feed, size_t offset, size_t count,
              const float *left)
{
    if (feed->e_new == NULL)
        return;
    if (feed->dtype != HEARTH_F64) {
        float *e_new = (float *)feed->e_new + offset;
        kernels->reduce[HEARTH_F32][KERNEL_SUM](e_new, e_new, left, count);
        return;
    }
    double *e_new = (double *)feed->e_new + offset;
    for (size_t i = 0; i < count; i++)
        e_new[i] += (double)left[i];
}
