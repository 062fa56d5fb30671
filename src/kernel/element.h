/* SPDX-License-Identifier: Apache-2.0 */
/* One element: loads and stores at any address, conversions, minimum and maximum, canonical NaN. Conversions
 * from and to 16 bits are integer arithmetic, so that nothing depends on the processor or its modes. */
#pragma once

#include <string.h>

#include "kernel/sets.h"

static inline uint16_t load_u16(const void *base, size_t index)
{
    uint16_t x;
    memcpy(&x, (const char *)base + index * sizeof x, sizeof x);
    return x;
}

static inline uint32_t load_u32(const void *base, size_t index)
{
    uint32_t x;
    memcpy(&x, (const char *)base + index * sizeof x, sizeof x);
    return x;
}

static inline uint64_t load_u64(const void *base, size_t index)
{
    uint64_t x;
    memcpy(&x, (const char *)base + index * sizeof x, sizeof x);
    return x;
}

static inline void store_u16(void *base, size_t index, uint16_t x)
{
    memcpy((char *)base + index * sizeof x, &x, sizeof x);
}

static inline void store_u32(void *base, size_t index, uint32_t x)
{
    memcpy((char *)base + index * sizeof x, &x, sizeof x);
}

static inline void store_u64(void *base, size_t index, uint64_t x)
{
    memcpy((char *)base + index * sizeof x, &x, sizeof x);
}

static inline uint32_t f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t f64_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double f64_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float load_f32(const void *base, size_t index)
{
    return f32_from_bits(load_u32(base, index));
}

static inline double load_f64(const void *base, size_t index)
{
    return f64_from_bits(load_u64(base, index));
}

/* Everything that was computed or converted is stored through these two: here a NaN becomes canonical. */
static inline void store_f32(void *base, size_t index, float x)
{
    store_u32(base, index, x != x ? NAN_F32 : f32_bits(x));
}

static inline void store_f64(void *base, size_t index, double x)
{
    store_u64(base, index, x != x ? NAN_F64 : f64_bits(x));
}

/* Minimum or maximum. Numbers that compare equal have equal bits, but for the two zeros: OR gives -0 if either
 * is, AND +0. */
static inline float f32_extreme(float a, float b, bool min)
{
    if (a != a || b != b)
        return f32_from_bits(NAN_F32);
    if (a == b)
        return f32_from_bits(min ? f32_bits(a) | f32_bits(b) : f32_bits(a) & f32_bits(b));
    return (a < b) == min ? a : b;
}

static inline double f64_extreme(double a, double b, bool min)
{
    if (a != a || b != b)
        return f64_from_bits(NAN_F64);
    if (a == b)
        return f64_from_bits(min ? f64_bits(a) | f64_bits(b) : f64_bits(a) & f64_bits(b));
    return (a < b) == min ? a : b;
}

/* bits / 2^shift to the nearest integer, ties to even. 0 < shift < 32. */
static inline uint32_t shift_nearest_even(uint32_t bits, uint32_t shift)
{
    uint32_t half = UINT32_C(1) << (shift - 1);
    uint32_t rest = bits & (2 * half - 1);
    uint32_t quotient = bits >> shift;
    return quotient + (rest > half || (rest == half && (quotient & 1)));
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff;
    if (magnitude > 0x7c00)
        return f32_from_bits(NAN_F32);
    if (magnitude == 0x7c00)
        return f32_from_bits(sign | UINT32_C(0x7f800000));
    if (magnitude >= 0x0400)
        return f32_from_bits(sign | ((magnitude << 13) + (UINT32_C(112) << 23)));
    return f32_from_bits(sign | f32_bits((float)magnitude * 0x1p-24f));
}

static inline uint16_t f16_from_f32(float x)
{
    uint32_t sign = f32_bits(x) >> 16 & 0x8000;
    uint32_t magnitude = f32_bits(x) & UINT32_C(0x7fffffff);
    uint32_t exponent = magnitude >> 23; /* of f32: 127 is 2^0 */
    if (magnitude > UINT32_C(0x7f800000))
        return NAN_F16;
    if (exponent >= 127 + 16)
        return (uint16_t)(sign | 0x7c00);
    if (exponent >= 127 - 14) /* a carry goes on into the exponent, and from the largest number to infinity */
        return (uint16_t)(sign | shift_nearest_even(magnitude - (UINT32_C(112) << 23), 13));
    if (exponent < 127 - 25) /* less than half of the smallest subnormal */
        return (uint16_t)sign;
    uint32_t significand = (magnitude & UINT32_C(0x7fffff)) | UINT32_C(0x800000);
    return (uint16_t)(sign | shift_nearest_even(significand, 126 - exponent));
}

static inline float bf16_to_f32(uint16_t b)
{
    return f32_from_bits((uint32_t)b << 16);
}

static inline uint16_t bf16_from_f32(float x)
{
    return x != x ? NAN_BF16 : (uint16_t)shift_nearest_even(f32_bits(x), 16);
}

/* To the nearest integer, ties to even: at 2^52 the last bit of a double counts ones. */
static inline double f64_round(double x)
{
    double magnitude = x < 0 ? -x : x;
    if (!(magnitude < 0x1p52))
        return x;
    double rounded = (magnitude + 0x1p52) - 0x1p52;
    return x < 0 ? -rounded : rounded;
}

/* Bounds that an int32_t, an uint32_t or less can have. NaN becomes 0. */
static inline int64_t f64_to_integer(double x, double least, double most)
{
    if (x != x)
        return 0;
    if (x <= least)
        return (int64_t)least;
    if (x >= most)
        return (int64_t)most;
    return (int64_t)f64_round(x);
}

static inline int64_t f64_to_i64(double x)
{
    if (x != x)
        return 0;
    if (x < -0x1p63)
        return INT64_MIN;
    if (x >= 0x1p63)
        return INT64_MAX;
    return (int64_t)f64_round(x);
}

static inline uint64_t f64_to_u64(double x)
{
    if (!(x > 0))
        return 0;
    if (x >= 0x1p64)
        return UINT64_MAX;
    return (uint64_t)f64_round(x);
}
