/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for x86-64 with AVX2 and F16C. Only the functions of this file may use these instructions, so
 * the pragmas are here and not in the build: nothing can be forgotten there. */
#if defined(__x86_64__)

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

#include <immintrin.h>

#define WIDTH      32
#define SET        kernels_avx2
#define SET_NAME   "avx2"
#define MATRIX_SET matrix_avx2

#include "kernel/simd.inc"

/* The empty statement hides where the numbers come from: clang would move comparisons back to f16, which has
 * none, and do them one by one. */
static f32v f16_to_f32v(u16half x)
{
    __m256 wide = _mm256_cvtph_ps((__m128i)x);
    __asm__("" : "+x"(wide));
    return (f32v)wide;
}

static u16half f16_from_f32v(f32v x)
{
    return (u16half)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static u32v u16_to_u32v(u16half x)
{
    return (u32v)_mm256_cvtepu16_epi32((__m128i)x);
}

static u16half u16_from_u32v(u32v x)
{
    return (u16half)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x),
                                     _mm256_extracti128_si256((__m256i)x, 1));
}

static void copy_far(void *target, const void *source, size_t len)
{
    char *t = target;
    const char *s = source;
    size_t front = (size_t)(-(uintptr_t)t % WIDTH);
    if (len < 4096) {
        memcpy(t, s, len);
        return;
    }
    memcpy(t, s, front);
    for (len -= front, t += front, s += front; len >= WIDTH; len -= WIDTH, t += WIDTH, s += WIDTH)
        _mm256_stream_si256((__m256i *)(void *)t, (__m256i)load(s));
    _mm_sfence();
    memcpy(t, s, len);
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
