/* SPDX-License-Identifier: Apache-2.0 */
/* From a tensor and its residual to f32, and what is left back into the residual: the first and the last step
 * of every codec. */
#pragma once

#include <string.h>

#include "compress/coder.h"
#include "kernel/quant.h"
#include "kernel/sift.h"

#define FINITE_MAX UINT32_C(0x7f7fffff) /* bits of the largest finite f32 */

/* Bits of |x|: they order as the magnitudes do. */
static inline uint32_t magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & MAGNITUDE_BITS;
}

/* acc[i] = gain * x[offset + i] + e[offset + i]: f64 in f64 and rounded once, all others in f32. Gives the
 * largest of the magnitudes' bits: above FINITE_MAX there is a NaN or Inf among them. */
uint32_t load_block(const struct kernels *kernels, const struct feed *feed, size_t offset, size_t count,
                    float *acc);
/* e_new[offset + i] = what is left when `left` remains of acc: f32 as it is; f64 together with what rounding
 * acc had cost (x and e must still be as they were). Goes past the caches: other threads may look at e_new
 * after kernels->stream_end only. e_new NULL: nothing. */
void stream_block(const struct kernels *kernels, const struct feed *feed, size_t offset, size_t count,
                  const float *left);
/* out[offset + i] = x[i], rounded to the type. Goes past the caches. */
void put_block(const struct kernels *kernels, enum hearth_dtype dtype, void *out, size_t offset, size_t count,
               const float *x);
/* The sum of the squares of [offset, offset + count) of the residual of a tensor of that type. */
double squares(enum hearth_dtype dtype, const void *x, size_t offset, size_t count);
/* e_new[offset + i] += left[i]. */
void add_left(const struct kernels *kernels, const struct feed *feed, size_t offset, size_t count,
              const float *left);
