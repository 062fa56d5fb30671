/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for 64-bit ARM, where NEON and its conversions of f16 are always there. */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#include <arm_neon.h>

#define WIDTH    16
#define SET      kernels_neon
#define SET_NAME "neon"

#include "kernel/simd.inc"

static f32v f16_to_f32v(u16half x)
{
    return (f32v)vcvt_f32_f16((float16x4_t)x);
}

static u16half f16_from_f32v(f32v x)
{
    return (u16half)vcvt_f16_f32((float32x4_t)x);
}

static u32v u16_to_u32v(u16half x)
{
    return (u32v)vmovl_u16((uint16x4_t)x);
}

static u16half u16_from_u32v(u32v x)
{
    return (u16half)vmovn_u32((uint32x4_t)x);
}

static i32v larger_i32v(i32v a, i32v b)
{
    return (i32v)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
}

static uint32_t most_of_i32v(i32v x)
{
    return (uint32_t)vmaxvq_s32((int32x4_t)x);
}

static f32v lesser_f32v(f32v a, f32v b)
{
    return (f32v)vminq_f32((float32x4_t)a, (float32x4_t)b);
}

static f32v larger_f32v(f32v a, f32v b)
{
    return (f32v)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}

static void store_u16v(uint8_t *to, u32v low, u32v high)
{
    store(to, (vec)vcombine_u16(vmovn_u32((uint32x4_t)low), vmovn_u32((uint32x4_t)high)));
}

static void store_i8v(uint8_t *to, const i32v from[4])
{
    int16x8_t low = vcombine_s16(vmovn_s32((int32x4_t)from[0]), vmovn_s32((int32x4_t)from[1]));
    int16x8_t high = vcombine_s16(vmovn_s32((int32x4_t)from[2]), vmovn_s32((int32x4_t)from[3]));
    store(to, (vec)vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

static void load_i8v(f32v to[4], const uint8_t *from)
{
    int8x16_t bytes = (int8x16_t)load(from);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    to[0] = (f32v)vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    to[1] = (f32v)vcvtq_f32_s32(vmovl_high_s16(low));
    to[2] = (f32v)vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    to[3] = (f32v)vcvtq_f32_s32(vmovl_high_s16(high));
}

static uint8_t signs_of_8(const float *x)
{
    static const int32_t places[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint32x4_t low = vshlq_u32(vshrq_n_u32((uint32x4_t)load(x), 31), (int32x4_t)load(places));
    uint32x4_t high = vshlq_u32(vshrq_n_u32((uint32x4_t)load(x + 4), 31), (int32x4_t)load(places + 4));
    return (uint8_t)vaddvq_u32(vorrq_u32(low, high));
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

static void store_far(float *to, f32v x)
{
    put(to, x);
}

static void stream(void *target, const void *source, size_t len)
{
    memcpy(target, source, len);
}

static void stream_end(void)
{
}

#endif
