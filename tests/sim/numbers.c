/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of every type as numbers: filling buffers, and a naive sum to compare with. */
#include "numbers.h"

#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

static bool is_float(enum hearth_dtype dtype)
{
    return dtype <= HEARTH_BF16;
}

static bool is_unsigned(enum hearth_dtype dtype)
{
    return dtype >= HEARTH_U8;
}

/* Through the definition of the kernels, which has tests of its own. */
static void put(void *target, enum hearth_dtype dtype, size_t index, double value)
{
    const struct kernels *k = kernels_named("scalar");
    uint8_t *at = (uint8_t *)target + index * hearth_dtype_size(dtype);
    float narrow = (float)value;
    bool half = dtype == HEARTH_F16 || dtype == HEARTH_BF16 || dtype == HEARTH_F32;
    k->narrow(dtype, at, half ? (const void *)&narrow : &value, 1);
}

double numbers_get(const void *source, enum hearth_dtype dtype, size_t index)
{
    const struct kernels *k = kernels_named("scalar");
    const uint8_t *at = (const uint8_t *)source + index * hearth_dtype_size(dtype);
    double value;
    float narrow;
    if (dtype == HEARTH_F16 || dtype == HEARTH_BF16 || dtype == HEARTH_F32) {
        k->widen(dtype, &narrow, at, 1);
        return narrow;
    }
    k->widen(dtype, &value, at, 1);
    return value;
}

void numbers_fill(void *target, size_t count, enum hearth_dtype dtype, enum hearth_op op,
                  enum numbers_kind kind, struct prng *prng)
{
    bool prod = op == HEARTH_OP_PROD;
    for (size_t i = 0; i < count; i++) {
        double value = prod ? 1 + (double)prng_below(prng, 2) : (double)prng_below(prng, 9);
        if (kind == NUMBERS_ANY && is_float(dtype))
            value = prng_unit(prng) * 2 - (prod ? 0 : 1);
        else if (!is_unsigned(dtype))
            value = prod ? (prng_below(prng, 2) ? value : -value) : value - 4;
        put(target, dtype, i, value);
    }
}

void numbers_add(struct numbers_sum *sum, const void *source, size_t index, double weight)
{
    double x = numbers_get(source, sum->dtype, index);
    if (sum->op == HEARTH_OP_AVG) {
        x *= weight;
        sum->weight = sum->count == 0 ? weight : sum->weight + weight;
    }
    if (sum->count++ == 0) {
        sum->value = x;
        sum->narrow = (float)x;
        return;
    }
    switch (sum->op) {
    case HEARTH_OP_PROD:
        sum->value *= x;
        sum->narrow *= (float)x;
        break;
    case HEARTH_OP_MIN:
        sum->value = fmin(sum->value, x);
        sum->narrow = fminf(sum->narrow, (float)x);
        break;
    case HEARTH_OP_MAX:
        sum->value = fmax(sum->value, x);
        sum->narrow = fmaxf(sum->narrow, (float)x);
        break;
    default:
        sum->value += x;
        sum->narrow += (float)x;
    }
}

/* What the operation gives over nobody. */
static double identity(const struct numbers_sum *sum)
{
    static const int kernel_op[OP_COUNT] = {
        [HEARTH_OP_PROD] = KERNEL_PROD, [HEARTH_OP_MIN] = KERNEL_MIN, [HEARTH_OP_MAX] = KERNEL_MAX};
    uint64_t element;
    kernel_identity(sum->dtype, kernel_op[sum->op], &element, 1);
    return numbers_get(&element, sum->dtype, 0);
}

double numbers_value(const struct numbers_sum *sum)
{
    if (sum->count == 0)
        return identity(sum);
    if (sum->op != HEARTH_OP_AVG && sum->dtype == HEARTH_I8)
        return (int8_t)(int64_t)sum->value; /* integers wrap */
    if (sum->op != HEARTH_OP_AVG && sum->dtype == HEARTH_U8)
        return (uint8_t)(int64_t)sum->value;
    if (sum->op != HEARTH_OP_AVG)
        return sum->value;
    return is_float(sum->dtype) ? sum->value / sum->weight : nearbyint(sum->value / sum->weight);
}

bool numbers_agree(const struct numbers_sum *sum, const void *target, size_t index)
{
    static const double epsilon[DTYPE_COUNT] = {0x1p-23, 0x1p-52, 0x1p-10, 0x1p-7};
    double got = numbers_get(target, sum->dtype, index), expected = numbers_value(sum);
    bool average = sum->op == HEARTH_OP_AVG;
    if (sum->count > 0 && sum->in_order && !average && sum->dtype == HEARTH_F32)
        return got == (double)sum->narrow;
    if (sum->count > 0 && sum->in_order && !average && sum->dtype == HEARTH_F64)
        return got == sum->value;
    if (sum->count == 0 || !is_float(sum->dtype) || (sum->exact && !average))
        return got == expected;
    double scale = fabs(expected) > 1 ? fabs(expected) : 1;
    return fabs(got - expected) <= epsilon[sum->dtype] * scale * (sum->count + 2);
}
