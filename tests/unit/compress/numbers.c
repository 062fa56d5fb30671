/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for selections, and a selection by sorting. */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/prng.h"
#include "support/suite.h"

const struct kernels *sets[SETS_MAX];
int set_count;

__attribute__((constructor)) static void sets_find(void)
{
    static const char *const names[] = {"scalar", "avx2", "neon"};
    for (int i = 0; i < SETS_MAX; i++)
        if (kernels_named(names[i]))
            sets[set_count++] = kernels_named(names[i]);
}

struct codec codec_of(const char *text)
{
    struct codec_list list;
    struct error error = {.text = ""};
    if (codec_parse(text, &list, &error) != HEARTH_OK)
        fail_msg("%s: %s", text ? text : "NULL", error.text);
    assert_int_equal(list.count, 1);
    assert_false(list.automatic);
    return list.codec[0];
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float gauss(struct prng *p)
{
    double radius = sqrt(-2 * log(1 - prng_unit(p)));
    return (float)(radius * cos(6.283185307179586 * prng_unit(p)));
}

static float number(enum numbers kind, struct prng *p, size_t i, size_t count)
{
    float sign = prng_below(p, 2) ? 1.0f : -1.0f;
    switch (kind) {
    case NUMBERS_FEW:
        return sign * (float)prng_below(p, 5);
    case NUMBERS_ZERO:
        return sign * 0.0f;
    case NUMBERS_EQUAL:
        return sign * 0.7f;
    case NUMBERS_SMALL:
        return sign * from_bits((uint32_t)prng_below(p, 3000));
    case NUMBERS_WIDE:
        return sign * from_bits((uint32_t)prng_below(p, 0x7f800000));
    case NUMBERS_RISING:
        return sign * (float)(i + 1);
    case NUMBERS_FALLING:
        return sign * (float)(count - i);
    case NUMBERS_SPARSE:
        return prng_below(p, 50) ? sign * 0.0f : gauss(p);
    case NUMBERS_BURST:
        return gauss(p) * (i % 1024 < 32 ? 100.0f : 1.0f);
    default:
        return gauss(p);
    }
}

void numbers_fill(enum numbers kind, uint64_t seed, float *x, size_t count)
{
    struct prng p;
    prng_init(&p, seed);
    for (size_t i = 0; i < count; i++)
        x[i] = number(kind, &p, i, count);
}

uint32_t magnitude_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void numbers_largest(const float *x, size_t count, size_t keep, uint32_t *index)
{
    uint64_t *keys = malloc(count * sizeof *keys);
    if (!keys)
        abort();
    for (size_t i = 0; i < count; i++)
        keys[i] = (uint64_t)magnitude_of(x[i]) << 32 | (UINT32_MAX - (uint32_t)i);
    qsort(keys, count, sizeof *keys, descending);
    for (size_t i = 0; i < keep; i++)
        index[i] = UINT32_MAX - (uint32_t)keys[i];
    qsort(index, keep, sizeof *index, ascending);
    free(keys);
}
