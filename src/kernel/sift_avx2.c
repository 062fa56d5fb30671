/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that find the largest, for x86-64 with AVX2. As in avx2.c, only functions of this file may use
 * these instructions. */
#if defined(__x86_64__)

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#include <immintrin.h>
#include <stdbool.h>

#define WIDTH 32
#define SET   sift_avx2

#include "kernel/sift_simd.inc"

static i32v larger_of(i32v a, i32v b)
{
    return (i32v)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

static int32_t sum_of(i32v x)
{
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

/* Packing works in halves of a register and so mixes fours of elements; one permutation undoes that. */
ALWAYS_INLINE uint32_t above_of_half(const float *x, i32v below)
{
    __m256i a = (__m256i)(magnitudes(x) > below), b = (__m256i)(magnitudes(x + 8) > below);
    __m256i c = (__m256i)(magnitudes(x + 16) > below), d = (__m256i)(magnitudes(x + 24) > below);
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return (uint32_t)_mm256_movemask_epi8(bytes);
}

static uint64_t above_of_word(const float *x, i32v below)
{
    return above_of_half(x, below) | (uint64_t)above_of_half(x + WORD / 2, below) << 32;
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
