/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction and scaling by every set against arithmetic written again here; NaN and zeros in every lane. */
#include <math.h>

#include "cases.h"
#include "support/suite.h"

#define SCALED 251 /* numbers that are scaled */

/* In a type that holds sums and products of two exactly, or nearly so: f32 and narrower come out the same
 * when they are rounded from there. min and max are exact. */
static double combine(int op, double a, double b)
{
    if (op == KERNEL_SUM)
        return a + b;
    if (op == KERNEL_PROD)
        return a * b;
    if (isnan(a) || isnan(b))
        return (double)NAN;
    bool a_first = a < b || (a == b && signbit(a) && !signbit(b));
    return a_first == (op == KERNEL_MIN) ? a : b;
}

static uint64_t reduce_integer(enum hearth_dtype dtype, int op, uint64_t a, uint64_t b)
{
    unsigned int unused = (unsigned int)(64 - 8 * dtype_size(dtype));
    bool is_signed = dtype == HEARTH_I8 || dtype == HEARTH_I32 || dtype == HEARTH_I64;
    uint64_t mask = UINT64_MAX >> unused;
    if (op == KERNEL_SUM)
        return (a + b) & mask;
    if (op == KERNEL_PROD)
        return (a * b) & mask;
    if (op == KERNEL_AND)
        return a & b;
    if (op == KERNEL_OR)
        return a | b;
    if (op == KERNEL_XOR)
        return a ^ b;
    uint64_t flip = is_signed ? UINT64_C(1) << (63 - unused) : 0; /* then the order is that without signs */
    return ((a ^ flip) < (b ^ flip)) == (op == KERNEL_MIN) ? a : b;
}

static uint64_t reduce_one(enum hearth_dtype dtype, int op, uint64_t a, uint64_t b)
{
    double r;
    switch (dtype) {
    case HEARTH_F32:
        r = combine(op, (double)f32_from_bits((uint32_t)a), (double)f32_from_bits((uint32_t)b));
        return isnan(r) ? NAN_F32 : f32_bits((float)r);
    case HEARTH_F64:
        r = combine(op, f64_from_bits(a), f64_from_bits(b));
        return isnan(r) ? NAN_F64 : f64_bits(r);
    case HEARTH_F16:
        return f16_nearest((double)(float)combine(op, f16_value((uint16_t)a), f16_value((uint16_t)b)));
    case HEARTH_BF16:
        return bf16_nearest((double)(float)combine(op, bf16_value((uint16_t)a), bf16_value((uint16_t)b)));
    default:
        return reduce_integer(dtype, op, a, b);
    }
}

static uint64_t element(const void *array, size_t index, size_t size)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)array + index * size, size);
    return bits;
}

static void check_reduce(enum hearth_dtype dtype, const void *acc, const void *source, size_t count)
{
    enum { LEN_MAX = 4096 * 8 };
    static char got[LEN_MAX];
    size_t size = dtype_size(dtype);
    assert_true(count * size <= LEN_MAX);
    for (int s = 0; s < set_count; s++)
        for (int op = 0; op < cases_ops((int)dtype); op++) {
            memcpy(got, acc, count * size);
            sets[s]->reduce(dtype, op, got, got, source, count);
            for (size_t i = 0; i < count; i++) {
                uint64_t a = element(acc, i, size), b = element(source, i, size), r = element(got, i, size);
                if (r == reduce_one(dtype, op, a, b))
                    continue;
                fail_msg("%s %s op %d: %llx with %llx gave %llx", sets[s]->name, hearth_dtype_name(dtype), op,
                         (unsigned long long)a, (unsigned long long)b, (unsigned long long)r);
            }
        }
}

TEST(every_type_and_operation)
{
    enum { COUNT = 4096 };
    static uint64_t acc[COUNT], source[COUNT];
    uint64_t seed = 4;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        cases_fill(&seed, (enum hearth_dtype)d, acc, COUNT);
        cases_fill(&seed, (enum hearth_dtype)d, source, COUNT);
        check_reduce((enum hearth_dtype)d, acc, source, COUNT);
    }
}

/* Every 16-bit pattern with a number of its own, and all patterns of 8 bits with all. */
TEST(every_small_pattern)
{
    enum { COUNT = 4096 };
    static uint16_t acc[COUNT], source[COUNT];
    static uint8_t acc8[COUNT], source8[COUNT];
    uint64_t seed = 5;
    for (int base = 0; base < 65536; base += COUNT) {
        for (int i = 0; i < COUNT; i++) {
            acc[i] = (uint16_t)(base + i);
            acc8[i] = (uint8_t)i;
            source8[i] = (uint8_t)((base + i) >> 8);
        }
        cases_fill(&seed, HEARTH_F16, source, COUNT);
        check_reduce(HEARTH_F16, acc, source, COUNT);
        cases_fill(&seed, HEARTH_BF16, source, COUNT);
        check_reduce(HEARTH_BF16, acc, source, COUNT);
        check_reduce(HEARTH_I8, acc8, source8, COUNT);
        check_reduce(HEARTH_U8, acc8, source8, COUNT);
    }
}

/* The hard pairs, in each lane alone and on either side, among ordinary numbers. */
TEST(nan_and_zeros_in_every_lane)
{
    enum { COUNT = 37, PAIRS = 7 };
    static const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};
    static const uint64_t one[] = {0x3f800000, UINT64_C(0x3ff0000000000000), 0x3c00, 0x3f80};
    static const uint64_t infinity[] = {0x7f800000, UINT64_C(0x7ff0000000000000), 0x7c00, 0x7f80};
    char acc[COUNT * 8], source[COUNT * 8];
    for (int d = 0; d < 4; d++) {
        size_t size = dtype_size(dtypes[d]);
        uint64_t minus = UINT64_C(1) << (8 * size - 1), signalling = infinity[d] + 1, full = minus - 1;
        const uint64_t pairs[PAIRS][2] = {
            {signalling, one[d]}, {full | minus, infinity[d]},        {full, signalling | minus}, {0, minus},
            {minus, minus},       {infinity[d], infinity[d] | minus}, {infinity[d], minus},
        };
        for (int lane = 0; lane < COUNT; lane++)
            for (int p = 0; p < PAIRS * 2; p++) {
                for (int i = 0; i < COUNT; i++) {
                    memcpy(acc + (size_t)i * size, &one[d], size);
                    memcpy(source + (size_t)i * size, &one[d], size);
                }
                memcpy(acc + (size_t)lane * size, &pairs[p / 2][p % 2], size);
                memcpy(source + (size_t)lane * size, &pairs[p / 2][1 - p % 2], size);
                check_reduce(dtypes[d], acc, source, COUNT);
            }
    }
}

/* Written down, so that a mistake shared by the kernels and the arithmetic above would be seen. */
TEST(minimum_and_maximum_by_hand)
{
    static const uint32_t a[] = {0x80000000, 0x00000000, 0x7fc00000, 0x3f800000, 0xff800000, 0x80000001};
    static const uint32_t b[] = {0x00000000, 0x80000000, 0xff800000, 0xffffffff, 0x7f800001, 0x00000001};
    static const uint32_t least[] = {0x80000000, 0x80000000, 0x7fc00000, 0x7fc00000, 0x7fc00000, 0x80000001};
    static const uint32_t most[] = {0x00000000, 0x00000000, 0x7fc00000, 0x7fc00000, 0x7fc00000, 0x00000001};
    for (int s = 0; s < set_count; s++) {
        uint32_t low[6], high[6];
        memcpy(low, a, sizeof a);
        memcpy(high, a, sizeof a);
        sets[s]->reduce(HEARTH_F32, KERNEL_MIN, low, low, b, 6);
        sets[s]->reduce(HEARTH_F32, KERNEL_MAX, high, high, b, 6);
        assert_memory_equal(low, least, sizeof least);
        assert_memory_equal(high, most, sizeof most);
    }
}

TEST(integers_wrap)
{
    for (int s = 0; s < set_count; s++) {
        int32_t a[3] = {INT32_MAX, INT32_MIN, -1}, b[3] = {1, -1, -1};
        int64_t c[1] = {INT64_MIN}, d[1] = {-1};
        int8_t e[2] = {-128, 100}, f[2] = {-1, 100};
        sets[s]->reduce(HEARTH_I32, KERNEL_SUM, a, a, b, 3);
        assert_true(a[0] == INT32_MIN && a[1] == INT32_MAX && a[2] == -2);
        sets[s]->reduce(HEARTH_I64, KERNEL_PROD, c, c, d, 1);
        assert_true(c[0] == INT64_MIN);
        sets[s]->reduce(HEARTH_I8, KERNEL_PROD, e, e, f, 2);
        assert_true(e[0] == -128 && e[1] == 16);
    }
}

/* Sums that f16 itself would get wrong: 1 + 2^-11 is a tie, and the f32 between keeps what decides it. */
TEST(small_floats_round_once)
{
    for (int s = 0; s < set_count; s++) {
        uint16_t f16[] = {0x3c00, 0x3c01, 0x7bff, 0x0001}, more[] = {0x1000, 0x1000, 0x7bff, 0x0001};
        uint16_t bf16[] = {0x3f80, 0x3f81, 0x7f7f}, much[] = {0x3b80, 0x3b80, 0x7f7f};
        sets[s]->reduce(HEARTH_F16, KERNEL_SUM, f16, f16, more, 4);
        assert_true(f16[0] == 0x3c00 && f16[1] == 0x3c02 && f16[2] == 0x7c00 && f16[3] == 0x0002);
        sets[s]->reduce(HEARTH_BF16, KERNEL_SUM, bf16, bf16, much, 3);
        assert_true(bf16[0] == 0x3f80 && bf16[1] == 0x3f82 && bf16[2] == 0x7f80);
    }
}

static uint64_t scale_one(enum hearth_dtype dtype, uint64_t bits, double factor, bool divides)
{
    bool wide = dtype == HEARTH_F64;
    double x = wide ? f64_from_bits(bits) : (double)f32_from_bits((uint32_t)bits);
    double by = wide ? factor : (double)(float)factor, r = divides ? x / by : x * by;
    if (isnan(r))
        return wide ? NAN_F64 : NAN_F32;
    return wide ? f64_bits(r) : f32_bits((float)r);
}

static void check_scale(const struct kernels *set, enum hearth_dtype dtype, const void *source, double factor)
{
    uint64_t product[SCALED], quotient[SCALED];
    size_t size = dtype_size(dtype);
    memcpy(product, source, SCALED * size);
    memcpy(quotient, source, SCALED * size);
    set->multiply(dtype, product, SCALED, factor);
    set->divide(dtype, quotient, SCALED, factor);
    for (size_t i = 0; i < SCALED; i++) {
        uint64_t x = element(source, i, size);
        assert_true(element(product, i, size) == scale_one(dtype, x, factor, false));
        assert_true(element(quotient, i, size) == scale_one(dtype, x, factor, true));
    }
}

TEST(scaling_rounds_once)
{
    static const double factors[] = {1,    -1,    3,     0.1,      1.0 / 3,   0x1p-30, 0,   -0.0,
                                     1e30, 1e-30, 1e-46, 0x1p-149, 0x1p-1074, 1e300,   NAN, INFINITY};
    uint64_t seed = 6;
    float f32[SCALED];
    double f64[SCALED];
    cases_fill(&seed, HEARTH_F32, f32, SCALED);
    cases_fill(&seed, HEARTH_F64, f64, SCALED);
    for (int s = 0; s < set_count; s++)
        for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
            check_scale(sets[s], HEARTH_F32, f32, factors[i]);
            check_scale(sets[s], HEARTH_F64, f64, factors[i]);
        }
}
