/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of every set against arithmetic: all 16-bit patterns, all ties, the ends of ranges. */
#include <math.h>

#include "cases.h"
#include "support/suite.h"

#define PATTERNS 65536

static void widen_all_patterns(enum hearth_dtype dtype, double (*value)(uint16_t))
{
    static uint16_t source[PATTERNS];
    static float target[PATTERNS];
    for (int i = 0; i < PATTERNS; i++)
        source[i] = (uint16_t)i;
    for (int s = 0; s < set_count; s++) {
        memset(target, 0xee, sizeof target);
        sets[s]->widen(dtype, target, source, PATTERNS);
        for (int i = 0; i < PATTERNS; i++) {
            double expected = value((uint16_t)i);
            assert_int_equal(f32_bits(target[i]), isnan(expected) ? NAN_F32 : f32_bits((float)expected));
        }
    }
}

TEST(f16_widens_to_its_value)
{
    widen_all_patterns(HEARTH_F16, f16_value);
}

TEST(bf16_widens_to_its_value)
{
    widen_all_patterns(HEARTH_BF16, bf16_value);
}

static void round_trip(enum hearth_dtype dtype, double (*value)(uint16_t), uint16_t nan)
{
    static uint16_t source[PATTERNS], target[PATTERNS];
    static float wide[PATTERNS];
    for (int i = 0; i < PATTERNS; i++)
        source[i] = (uint16_t)i;
    for (int s = 0; s < set_count; s++) {
        sets[s]->widen(dtype, wide, source, PATTERNS);
        sets[s]->narrow(dtype, target, wide, PATTERNS);
        for (int i = 0; i < PATTERNS; i++)
            assert_int_equal(target[i], isnan(value((uint16_t)i)) ? nan : i);
    }
}

TEST(f16_survives_the_round_trip)
{
    round_trip(HEARTH_F16, f16_value, NAN_F16);
}

TEST(bf16_survives_the_round_trip)
{
    round_trip(HEARTH_BF16, bf16_value, NAN_BF16);
}

static void narrow_and_compare(enum hearth_dtype dtype, uint16_t (*nearest)(double), const float *source,
                               size_t count)
{
    uint16_t target[64];
    assert_true(count <= 64);
    for (int s = 0; s < set_count; s++) {
        sets[s]->narrow(dtype, target, source, count);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(target[i], nearest((double)source[i]));
    }
}

/* Each pattern, the tie above it, and what lies next to the tie on both sides, with both signs. */
static void ties_go_to_even(enum hearth_dtype dtype, double (*value)(uint16_t), uint16_t infinity,
                            double limit, uint16_t (*nearest)(double))
{
    for (uint16_t i = 0; i < infinity; i++) {
        double next = i + 1 == infinity ? limit : value((uint16_t)(i + 1));
        float here = (float)value(i), tie = (float)((value(i) + next) / 2);
        float source[8] = {here, nextafterf(tie, 0), tie, nextafterf(tie, INFINITY)};
        for (int k = 0; k < 4; k++)
            source[4 + k] = -source[k];
        narrow_and_compare(dtype, nearest, source, 8);
    }
}

TEST(f16_ties_go_to_even)
{
    ties_go_to_even(HEARTH_F16, f16_value, 0x7c00, 65536, f16_nearest);
}

TEST(bf16_ties_go_to_even)
{
    ties_go_to_even(HEARTH_BF16, bf16_value, 0x7f80, 0x1p128, bf16_nearest);
}

TEST(any_f32_narrows_to_the_nearest)
{
    uint64_t seed = 1;
    float source[64];
    for (int round = 0; round < 400; round++) {
        cases_fill(&seed, HEARTH_F32, source, 64);
        narrow_and_compare(HEARTH_F16, f16_nearest, source, 64);
        narrow_and_compare(HEARTH_BF16, bf16_nearest, source, 64);
    }
}

static uint16_t narrow_one(const struct kernels *set, enum hearth_dtype dtype, uint32_t bits, size_t lane)
{
    uint32_t source[16] = {0};
    uint16_t target[16];
    source[lane] = bits;
    set->narrow(dtype, target, source, 16);
    return target[lane];
}

/* Numbers that other libraries got wrong. The answers are written down here, not computed. */
TEST(known_mistakes)
{
    static const struct {
        enum hearth_dtype dtype;
        uint32_t bits;
        uint16_t expected;
    } list[] = {
        {HEARTH_F16, 0x35d6bf95, 0x001b},  /* 1.6e-6: a subnormal, not 0 and not -0.0027 */
        {HEARTH_F16, 0x3ffff972, 0x4000},  /* 1.9998: rounds up to 2, the carry goes into the exponent */
        {HEARTH_F16, 0x40fff7cf, 0x4800},  /* 7.999: to 8, not 4 */
        {HEARTH_F16, 0x3efff972, 0x3800},  /* 0.49995: to 0.5, not 0.25 */
        {HEARTH_F16, 0x477fefff, 0x7bff},  /* just under 65520: the largest number */
        {HEARTH_F16, 0x477ff000, 0x7c00},  /* 65520: a tie, infinity is even */
        {HEARTH_F16, 0x33000000, 0x0000},  /* 2^-25: a tie, zero is even */
        {HEARTH_F16, 0x33000001, 0x0001},  /* just above */
        {HEARTH_F16, 0xb3000000, 0x8000},  /* keeps its sign */
        {HEARTH_F16, 0x387fe000, 0x0400},  /* the largest subnormal and a half: the smallest normal number */
        {HEARTH_F16, 0x7f800001, 0x7e00},  /* signalling NaN */
        {HEARTH_F16, 0xffffffff, 0x7e00},  /* NaN with a sign */
        {HEARTH_BF16, 0x7fffffff, 0x7fc0}, /* NaN whose rounding overflows */
        {HEARTH_BF16, 0x7f800001, 0x7fc0}, /* NaN that truncates to infinity */
        {HEARTH_BF16, 0xffffffff, 0x7fc0}, {HEARTH_BF16, 0x3f808000, 0x3f80}, /* ties */
        {HEARTH_BF16, 0x3f818000, 0x3f82}, {HEARTH_BF16, 0x3f80ffff, 0x3f81}, /* rounds, does not truncate */
        {HEARTH_BF16, 0x7f7fffff, 0x7f80},                                    /* overflows */
        {HEARTH_BF16, 0x00000001, 0x0000}, {HEARTH_BF16, 0x00018000, 0x0002},
    };
    assert_true(f32_bits(1.6e-6f) == 0x35d6bf95 && f32_bits(1.9998f) == 0x3ffff972);
    assert_true(f32_bits(7.999f) == 0x40fff7cf && f32_bits(0.49995f) == 0x3efff972);
    for (int s = 0; s < set_count; s++)
        for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
            for (size_t lane = 0; lane < 16; lane++)
                assert_int_equal(narrow_one(sets[s], list[i].dtype, list[i].bits, lane), list[i].expected);
}

TEST(wide_floats_are_copied)
{
    static const uint32_t small[] = {0,          0x80000000, 1,          0x7f7fffff, 0xff800000,
                                     0x7f800001, 0xffc12345, 0x3f800000, 7};
    static const uint64_t large[] = {
        0, 0x8000000000000000, 1, 0xfff0000000000000, 0x7ff0000000000001, 0xfff8000012345678, 7};
    for (int s = 0; s < set_count; s++) {
        uint32_t f32[9];
        uint64_t f64[7];
        sets[s]->widen(HEARTH_F32, f32, small, 9);
        for (int i = 0; i < 9; i++)
            assert_int_equal(f32[i], i == 5 || i == 6 ? NAN_F32 : small[i]);
        sets[s]->narrow(HEARTH_F64, f64, large, 7);
        for (int i = 0; i < 7; i++)
            assert_true(f64[i] == (i == 4 || i == 5 ? NAN_F64 : large[i]));
    }
}

/* The nearest double to a magnitude of 64 bits: its top 53 bits; the rest is compared with a half. */
static double double_of(uint64_t magnitude, bool negative)
{
    int shift = 0;
    while (magnitude >> shift >= UINT64_C(1) << 53)
        shift++;
    uint64_t top = magnitude >> shift, rest = magnitude - (top << shift);
    uint64_t half = shift ? UINT64_C(1) << (shift - 1) : 1;
    if (rest > half || (rest == half && top % 2 == 1))
        top++;
    double value = ldexp((double)top, shift);
    return negative ? -value : value;
}

static double integer_value(enum hearth_dtype dtype, const void *from)
{
    int8_t i8;
    int32_t i32;
    uint64_t bits = 0;
    memcpy(&i8, from, 1);
    memcpy(&bits, from, dtype_size(dtype));
    i32 = (int32_t)bits;
    int64_t value = dtype == HEARTH_I8 ? i8 : dtype == HEARTH_I32 ? i32 : (int64_t)bits;
    bool negative = value < 0 && dtype != HEARTH_U64;
    return double_of(negative ? 0 - (uint64_t)value : (uint64_t)value, negative);
}

TEST(integers_widen_to_the_nearest)
{
    enum { COUNT = 1024 };
    static uint64_t source[COUNT];
    static double target[COUNT];
    uint64_t seed = 2;
    for (int d = HEARTH_I8; d < DTYPE_COUNT; d++) {
        enum hearth_dtype dtype = (enum hearth_dtype)d;
        size_t size = dtype_size(dtype);
        cases_fill(&seed, dtype, source, COUNT);
        for (int s = 0; s < set_count; s++) {
            sets[s]->widen(dtype, target, source, COUNT);
            for (size_t i = 0; i < COUNT; i++)
                assert_true(f64_bits(target[i]) ==
                            f64_bits(integer_value(dtype, (const char *)source + i * size)));
        }
    }
}

/* The sign of zero and the mode of rounding are the library's, the limits are ours. */
static uint64_t integer_nearest(enum hearth_dtype dtype, double x)
{
    static const double least[DTYPE_COUNT] = {
        [HEARTH_I8] = -128, [HEARTH_I32] = -0x1p31, [HEARTH_I64] = -0x1p63};
    static const double limit[DTYPE_COUNT] = {
        [HEARTH_I8] = 0x1p7, [HEARTH_I32] = 0x1p31, [HEARTH_I64] = 0x1p63,
        [HEARTH_U8] = 0x1p8, [HEARTH_U32] = 0x1p32, [HEARTH_U64] = 0x1p64};
    size_t bits = 8 * dtype_size(dtype);
    uint64_t all = UINT64_MAX >> (64 - bits);
    double rounded = nearbyint(x);
    if (isnan(x))
        return 0;
    if (rounded >= limit[dtype])
        return least[dtype] < 0 ? all >> 1 : all;
    if (rounded < least[dtype])
        return least[dtype] < 0 ? (all >> 1) + 1 : 0;
    return rounded < 0 ? (0 - (uint64_t)-rounded) & all : (uint64_t)rounded;
}

TEST(f64_narrows_to_the_nearest_integer)
{
    enum { COUNT = 8192 };
    static double source[COUNT];
    static uint64_t target[COUNT];
    uint64_t seed = 3;
    cases_fill(&seed, HEARTH_F64, source, COUNT);
    for (int i = 0; i < 1200; i++)
        source[i] = (i - 600) / 4.0;
    for (int d = HEARTH_I8; d < DTYPE_COUNT; d++) {
        enum hearth_dtype dtype = (enum hearth_dtype)d;
        size_t size = dtype_size(dtype);
        for (int s = 0; s < set_count; s++) {
            sets[s]->narrow(dtype, target, source, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                uint64_t got = 0;
                memcpy(&got, (const char *)target + i * size, size);
                assert_true(got == integer_nearest(dtype, source[i]));
            }
        }
    }
}

TEST(integers_saturate)
{
    static const double source[] = {1e300, -1e300, INFINITY, -INFINITY, NAN,   0.5,
                                    1.5,   -0.5,   -1.5,     127.5,     -128.5};
    static const int8_t i8[] = {127, -128, 127, -128, 0, 0, 2, 0, -2, 127, -128};
    static const uint8_t u8[] = {255, 0, 255, 0, 0, 0, 2, 0, 0, 128, 0};
    static const int64_t i64[] = {INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, 0, 0, 2, 0, -2, 128, -128};
    static const uint64_t u64[] = {UINT64_MAX, 0, UINT64_MAX, 0, 0, 0, 2, 0, 0, 128, 0};
    const void *const expected[] = {
        [HEARTH_I8] = i8, [HEARTH_U8] = u8, [HEARTH_I64] = i64, [HEARTH_U64] = u64};
    uint64_t target[11];
    for (int s = 0; s < set_count; s++)
        for (enum hearth_dtype dtype = HEARTH_I8; dtype <= HEARTH_U64; dtype++)
            if (expected[dtype]) {
                sets[s]->narrow(dtype, target, source, 11);
                assert_memory_equal(target, expected[dtype], 11 * dtype_size(dtype));
            }
}
