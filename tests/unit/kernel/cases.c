/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of kernels share. No arithmetic here is taken from the kernels. */
#include "cases.h"

#include <math.h>

#include "support/suite.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

const struct kernels *sets[CASE_SETS_MAX];
int set_count;

/* Of every program of these tests. */
int main(void)
{
    static const char *const names[CASE_SETS_MAX] = {"scalar", "avx2", "neon"};
    for (int i = 0; i < CASE_SETS_MAX; i++) {
        const struct kernels *set = kernels_named(names[i]);
        if (set)
            sets[set_count++] = set;
        else
            printf("skipped: %s is not for this processor\n", names[i]);
    }
    return suite_run();
}

uint64_t cases_next(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t special_f32(uint64_t random)
{
    static const uint32_t list[] = {
        0x00000000, 0x00000001, 0x007fffff, 0x00800000, 0x3f800000, 0x3f7fffff, 0x3f800001, 0x7f7fffff,
        0x7f800000, 0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff, 0x33000000, 0x33000001, 0x33800000,
        0x387fc000, 0x387fe000, 0x38800000, 0x477fe000, 0x477fefff, 0x477ff000, 0x477fffff, 0x47800000,
        0x3f808000, 0x3f818000, 0x3f808001, 0x7f7f7fff, 0x7f7f8000, 0x00008000, 0x00018000, 0x00400000,
        0x3f801000, 0x3f803000, 0x3f801001, 0x34c00000,
    };
    return list[random % COUNT_OF(list)] | (uint32_t)(random >> 32 & 0x80000000);
}

static uint64_t special_f64(uint64_t random)
{
    static const double list[] = {
        0.0,          0x1p-1074,    0x1p-1022,     1.0,          0.5,    1.5,          2.5,
        126.5,        127.5,        128.5,         254.5,        255.5,  2147483646.5, 2147483647.5,
        2147483648.5, 4294967294.5, 4294967295.5,  4294967296.,  0x1p51, 0x1.8p51,     0x1p52,
        0x1p53,       0x1p62,       0x1p63,        0x1p64,       0x1p31, 0x1p1023,     0x1p52 - .5,
        0x1p51 + .5,  0x1p51 - .5,  0x1p63 - 1024, 0x1p64 - 2048};
    static const uint64_t others[] = {
        0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff0000000000001, 0x7ff8000000000000, 0x7fffffffffffffff,
        0x000fffffffffffff, 0x3fdfffffffffffff, 0x3fe0000000000001, 0x43dfffffffffffff, 0x43efffffffffffff,
    };
    size_t pick = random % (COUNT_OF(list) + COUNT_OF(others));
    uint64_t bits = pick < COUNT_OF(list) ? f64_bits(list[pick]) : others[pick - COUNT_OF(list)];
    bits += (random >> 20 & 7) == 0; /* the next number */
    return bits | (random & UINT64_C(0x8000000000000000));
}

static uint64_t special_f16(uint64_t random)
{
    static const uint16_t list[] = {0x0000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0x3bff, 0x3c01, 0x7bff,
                                    0x7c00, 0x7c01, 0x7dff, 0x7e00, 0x7fff, 0x0200, 0x4800, 0x6800};
    return list[random % COUNT_OF(list)] | (random >> 32 & 0x8000);
}

static uint64_t special_bf16(uint64_t random)
{
    static const uint16_t list[] = {0x0000, 0x0001, 0x007f, 0x0080, 0x3f80, 0x3f7f, 0x3f81, 0x7f7f,
                                    0x7f80, 0x7f81, 0x7fbf, 0x7fc0, 0x7fff, 0x0040, 0x4180, 0x7f00};
    return list[random % COUNT_OF(list)] | (random >> 32 & 0x8000);
}

/* Ends of ranges and their neighbours, for integers of any size: the low bytes are taken. */
static uint64_t special_integer(uint64_t random, size_t size)
{
    uint64_t top = UINT64_C(1) << (8 * size - 1);
    static const int64_t near[] = {-2, -1, 0, 1, 2};
    uint64_t base = random & 0x100 ? top : 0;
    return base + (uint64_t)near[(random & 0xff) % COUNT_OF(near)];
}

static uint64_t special(enum hearth_dtype dtype, uint64_t random)
{
    switch (dtype) {
    case HEARTH_F32:
        return special_f32(random);
    case HEARTH_F64:
        return special_f64(random);
    case HEARTH_F16:
        return special_f16(random);
    case HEARTH_BF16:
        return special_bf16(random);
    default:
        return special_integer(random, dtype_size(dtype));
    }
}

/* Not far from 1, so that sums and products of two round somewhere in the middle; f64 also as integers. */
static uint64_t tame(enum hearth_dtype dtype, uint64_t random)
{
    uint64_t exponent = random % 24, sign = random >> 63;
    uint64_t integer = (random >> 8) >> (random % 56);
    switch (dtype) {
    case HEARTH_F32:
        return sign << 31 | (115 + exponent) << 23 | (random >> 8 & 0x7fffff);
    case HEARTH_F64:
        return f64_bits((sign ? -0.25 : 0.25) * (double)(integer & UINT64_C(0x1fffffffffffff)));
    case HEARTH_F16:
        return sign << 15 | (3 + exponent) << 10 | (random >> 8 & 0x3ff);
    case HEARTH_BF16:
        return sign << 15 | (115 + exponent) << 7 | (random >> 8 & 0x7f);
    default:
        return sign ? 0 - integer : integer;
    }
}

void cases_fill(uint64_t *seed, enum hearth_dtype dtype, void *target, size_t count)
{
    size_t size = dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t kind = cases_next(seed) % 4, bits = cases_next(seed);
        if (kind == 0)
            bits = special(dtype, bits);
        else if (kind != 1)
            bits = tame(dtype, bits);
        memcpy((char *)target + i * size, &bits, size);
    }
}

int cases_ops(int dtype)
{
    return dtype <= HEARTH_BF16 ? KERNEL_AND : KERNEL_OPS;
}

enum hearth_dtype cases_wide(enum hearth_dtype dtype)
{
    return dtype == HEARTH_F32 || dtype == HEARTH_F16 || dtype == HEARTH_BF16 ? HEARTH_F32 : HEARTH_F64;
}

/* A binary float with a sign, `exponent_bits` and `fraction_bits`. */
static double value_of(uint32_t bits, int exponent_bits, int fraction_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    int top = (1 << exponent_bits) - 1;
    int exponent = (int)(bits >> fraction_bits) & top;
    int fraction = (int)(bits & ((UINT32_C(1) << fraction_bits) - 1));
    double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1 : 1;
    if (exponent == top)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

double f16_value(uint16_t bits)
{
    return value_of(bits, 5, 10);
}

double bf16_value(uint16_t bits)
{
    return value_of(bits, 8, 7);
}

/* Between the largest number and `limit`, the next that there would be, rounding is as everywhere else; what
 * rounds to the limit is infinite. Patterns of positive numbers have the order of their values. */
static uint16_t nearest(double x, double (*value)(uint16_t), uint16_t infinity, double limit, uint16_t nan)
{
    if (isnan(x))
        return nan;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double magnitude = fabs(x);
    if (magnitude >= limit)
        return (uint16_t)(sign | infinity);
    uint16_t low = 0, high = infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (value(middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double above = (high == infinity ? limit : value(high)) - magnitude;
    double below = magnitude - value(low);
    bool up = above < below || (above == below && low % 2 == 1);
    return (uint16_t)(sign | (up ? high : low));
}

uint16_t f16_nearest(double x)
{
    return nearest(x, f16_value, 0x7c00, 65536, NAN_F16);
}

uint16_t bf16_nearest(double x)
{
    return nearest(x, bf16_value, 0x7f80, 0x1p128, NAN_BF16);
}
