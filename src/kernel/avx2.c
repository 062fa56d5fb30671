/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for x86-64 with AVX2 and F16C. Only this file may use these instructions: cmake/flags.cmake. */
#if defined(__x86_64__)

#include <immintrin.h>

#define WIDTH    32
#define SET      kernels_avx2
#define SET_NAME "avx2"

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

static i32v larger_i32v(i32v a, i32v b)
{
    return (i32v)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

static uint32_t most_of_i32v(i32v x)
{
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(most);
}

static f32v lesser_f32v(f32v a, f32v b)
{
    return (f32v)_mm256_min_ps((__m256)a, (__m256)b);
}

static f32v larger_f32v(f32v a, f32v b)
{
    return (f32v)_mm256_max_ps((__m256)a, (__m256)b);
}

/* Packing works on the halves of registers: the quarters are put in order afterwards. */
static void store_u16v(uint8_t *to, u32v low, u32v high)
{
    __m256i mixed = _mm256_packus_epi32((__m256i)low, (__m256i)high);
    store(to, (vec)_mm256_permute4x64_epi64(mixed, 0xd8));
}

static void store_i8v(uint8_t *to, const i32v from[4])
{
    __m256i low = _mm256_packs_epi32((__m256i)from[0], (__m256i)from[1]);
    __m256i high = _mm256_packs_epi32((__m256i)from[2], (__m256i)from[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    store(to, (vec)_mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
}

static void load_i8v(f32v to[4], const uint8_t *from)
{
    for (size_t i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(from + 8 * i));
        to[i] = (f32v)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
}

static uint8_t signs_of_8(const float *x)
{
    return (uint8_t)_mm256_movemask_ps((__m256)load(x));
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

static void store_far(float *to, f32v x)
{
    _mm256_stream_ps(to, (__m256)x);
}

static void stream(void *target, const void *source, size_t len)
{
    char *t = target;
    const char *s = source;
    size_t front = (size_t)(-(uintptr_t)t % WIDTH);
    if (len < 1024) {
        memcpy(t, s, len);
        return;
    }
    memcpy(t, s, front);
    for (len -= front, t += front, s += front; len >= WIDTH; len -= WIDTH, t += WIDTH, s += WIDTH)
        _mm256_stream_si256((__m256i *)(void *)t, (__m256i)load(s));
    memcpy(t, s, len);
}

static void stream_end(void)
{
    _mm_sfence();
}

#endif
