/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that find the largest, for 64-bit ARM. */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#include <arm_neon.h>
#include <stdbool.h>

#define WIDTH 16
#define SET   sift_neon

#include "kernel/sift_simd.inc"

static i32v larger_of(i32v a, i32v b)
{
    return (i32v)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
}

static int32_t sum_of(i32v x)
{
    return vaddvq_s32((int32x4_t)x);
}

/* Sixteen comparisons, each a bit of its own in its byte of eight. */
ALWAYS_INLINE uint8x16_t above_of_16(const float *x, i32v below)
{
    static const uint8_t weights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint32x4_t a = (uint32x4_t)(magnitudes(x) > below), b = (uint32x4_t)(magnitudes(x + 4) > below);
    uint32x4_t c = (uint32x4_t)(magnitudes(x + 8) > below), d = (uint32x4_t)(magnitudes(x + 12) > below);
    uint16x8_t ab = vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
    uint16x8_t cd = vuzp1q_u16(vreinterpretq_u16_u32(c), vreinterpretq_u16_u32(d));
    uint8x16_t bytes = vuzp1q_u8(vreinterpretq_u8_u16(ab), vreinterpretq_u8_u16(cd));
    return vandq_u8(bytes, vld1q_u8(weights));
}

static uint64_t above_of_word(const float *x, i32v below)
{
    uint8x16_t ab = vpaddq_u8(above_of_16(x, below), above_of_16(x + 16, below));
    uint8x16_t cd = vpaddq_u8(above_of_16(x + 32, below), above_of_16(x + 48, below));
    uint8x16_t all = vpaddq_u8(ab, cd);
    all = vpaddq_u8(all, all);
    return vgetq_lane_u64(vreinterpretq_u64_u8(all), 0);
}

#endif
