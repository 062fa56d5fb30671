/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels on matrices for x86-64 with AVX2. As in avx2.c, only this file may use these instructions. */
#if defined(__x86_64__)

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#include <immintrin.h>

#define WIDTH 32
#define SET   matrix_avx2

#include "kernel/matrix_simd.inc"

static void store_far(float *to, f32v x)
{
    _mm256_stream_ps(to, (__m256)x);
}

static void settle(void)
{
    _mm_sfence();
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
