/* SPDX-License-Identifier: Apache-2.0 */
/* What the scalar and the vector kernels of quant.h share. Inside kernel/ only. */
#pragma once

#include "kernel/element.h"
#include "kernel/quant.h"
#include "kernel/sift.h"

#define BF16_MOST UINT32_C(0x7f7f0000) /* the largest finite one, as f32 */

/* Integers of less than 2^22 are the last bits of their sum with this: the addition rounds to nearest
 * even. */
#define ROUNDER_F32      0x1.8p23f
#define ROUNDER_F32_BITS UINT32_C(0x4b400000)

#define ONEBIT_LANES 16 /* sums of magnitudes that run side by side, whatever the width of a register */

/* 2^exponent, of a normal number. */
static inline float power_of_two(int exponent)
{
    return f32_from_bits((uint32_t)(127 + exponent) << 23);
}

/* The largest f16 that is not beyond f32 when it is decoded. */
static inline float fp16_limit(int exponent)
{
    return exponent == QUANT_EXPONENT_MOST ? 0x1.ffcp14f : 65504.0f;
}

/* The lanes' sums of magnitude / QUANT_BLOCK become the mean as bf16: added pairwise, so that the order is
 * the same everywhere. */
static inline uint16_t onebit_scale(float lanes[ONEBIT_LANES], size_t count)
{
    for (size_t half = ONEBIT_LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    uint32_t bits = f32_bits(lanes[0] / ((float)count / QUANT_BLOCK));
    bits = bits < BF16_MOST ? bits : BF16_MOST;
    return (uint16_t)shift_nearest_even(bits, 16);
}
