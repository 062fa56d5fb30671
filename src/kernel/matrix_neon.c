/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels on matrices for 64-bit ARM, where NEON is always there. */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#define WIDTH 16
#define SET   matrix_neon

#include "kernel/matrix_simd.inc"

static void store_far(float *to, f32v x)
{
    put(to, x);
}

static void settle(void)
{
}

#endif
