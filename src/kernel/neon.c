/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for 64-bit ARM, where NEON and its conversions of f16 are always there. */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#include <arm_neon.h>

#define WIDTH      16
#define SET        kernels_neon
#define SET_NAME   "neon"
#define MATRIX_SET matrix_neon

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

static void copy_far(void *target, const void *source, size_t len)
{
    memcpy(target, source, len);
}

#endif
