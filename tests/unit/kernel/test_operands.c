/* SPDX-License-Identifier: Apache-2.0 */
/* Where operands stand makes no difference: the target may be either of them or neither, at any address; and
 * the copy past the caches is a copy. */
#include "cases.h"
#include "support/suite.h"

#define COUNT_MAX 1100u
#define GUARD     64u

/* Room for COUNT_MAX of the largest elements, shifted by up to 64 bytes, with guards around. */
struct place {
    _Alignas(64) uint8_t bytes[COUNT_MAX * 8 + 64 + 2 * GUARD];
};

static uint8_t *put(struct place *place, size_t shift, const void *content, size_t len)
{
    memset(place->bytes, 0xa5, sizeof place->bytes);
    memcpy(place->bytes + GUARD + shift, content, len);
    return place->bytes + GUARD + shift;
}

static void expect_guards(const struct place *place, size_t shift, size_t len)
{
    size_t wrong = 0;
    for (size_t i = 0; i < sizeof place->bytes; i++)
        wrong += (i < GUARD + shift || i >= GUARD + shift + len) && place->bytes[i] != 0xa5;
    assert_int_equal(wrong, 0);
}

static void expect_place(const struct place *place, size_t shift, const void *content, size_t len)
{
    assert_memory_equal(place->bytes + GUARD + shift, content, len);
    expect_guards(place, shift, len);
}

struct operands {
    uint64_t a[COUNT_MAX], b[COUNT_MAX], expected[COUNT_MAX];
};

/* All three ways to say where the result goes. */
static void check(const struct kernels *set, enum hearth_dtype dtype, int op, const struct operands *o,
                  size_t count, const size_t shifts[3])
{
    static struct place places[3];
    size_t size = dtype_size(dtype), len = count * size;
    uint8_t *a = put(&places[0], shifts[0] * size, o->a, len);
    uint8_t *b = put(&places[1], shifts[1] * size, o->b, len);
    uint8_t *target = put(&places[2], shifts[2] * size, o->b, len);
    set->reduce(dtype, op, target, a, b, count);
    expect_place(&places[0], shifts[0] * size, o->a, len);
    expect_place(&places[1], shifts[1] * size, o->b, len);
    expect_place(&places[2], shifts[2] * size, o->expected, len);
    set->reduce(dtype, op, b, a, b, count);
    expect_place(&places[0], shifts[0] * size, o->a, len);
    expect_place(&places[1], shifts[1] * size, o->expected, len);
    b = put(&places[1], shifts[1] * size, o->b, len);
    set->reduce(dtype, op, a, a, b, count);
    expect_place(&places[0], shifts[0] * size, o->expected, len);
    expect_place(&places[1], shifts[1] * size, o->b, len);
}

TEST(the_target_may_be_either_operand_or_neither)
{
    static struct operands o;
    static const size_t counts[] = {0,  1,  2,  3,  7,  8,  9,   15,  16,   17,
                                    31, 32, 33, 63, 64, 65, 100, 129, 1023, 1100};
    static const size_t shifts[][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {3, 5, 7}, {7, 7, 2}};
    uint64_t seed = 9;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum hearth_dtype dtype = (enum hearth_dtype)d;
        cases_fill(&seed, dtype, o.a, COUNT_MAX);
        cases_fill(&seed, dtype, o.b, COUNT_MAX);
        for (int op = 0; op < cases_ops(d); op++) {
            memcpy(o.expected, o.a, sizeof o.a);
            sets[0]->reduce(dtype, op, o.expected, o.expected, o.b, COUNT_MAX); /* right: test_reduce */
            for (int s = 0; s < set_count; s++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++)
                        check(sets[s], dtype, op, &o, counts[c], shifts[i]);
        }
    }
}

/* The same memory three times. */
TEST(both_operands_may_be_the_same)
{
    static uint64_t a[COUNT_MAX], b[COUNT_MAX], expected[COUNT_MAX];
    uint64_t seed = 10;
    for (int s = 0; s < set_count; s++)
        for (int d = 0; d < DTYPE_COUNT; d++)
            for (int op = 0; op < cases_ops(d); op++) {
                cases_fill(&seed, (enum hearth_dtype)d, a, COUNT_MAX);
                memcpy(b, a, sizeof a);
                sets[s]->reduce((enum hearth_dtype)d, op, expected, a, b, COUNT_MAX);
                sets[s]->reduce((enum hearth_dtype)d, op, a, a, a, COUNT_MAX);
                assert_memory_equal(a, expected, COUNT_MAX * dtype_size((enum hearth_dtype)d));
            }
}

/* ---- the copy ---- */

static void check_copy(const struct kernels *set, size_t to, size_t from, size_t len)
{
    static struct place target, source;
    static uint8_t content[sizeof target.bytes];
    for (size_t i = 0; i < len; i++)
        content[i] = (uint8_t)(i * 31 + len + to);
    uint8_t *start = put(&source, from, content, len);
    memset(target.bytes, 0xa5, sizeof target.bytes);
    set->copy_far(target.bytes + GUARD + to, start, len);
    expect_place(&target, to, content, len);
    expect_place(&source, from, content, len);
}

TEST(far_copies_are_copies_at_every_address)
{
    static const size_t froms[] = {0, 1, 8, 16, 31, 32, 63};
    for (int s = 0; s < set_count; s++)
        for (size_t to = 0; to < 64; to++)
            for (size_t f = 0; f < sizeof froms / sizeof *froms; f++)
                for (size_t len = 0; len < 8000; len += len < 20 ? 1 : len < 300 ? 37 : 1501)
                    check_copy(sets[s], to, froms[f], len);
}

TEST(far_copies_are_copies_at_every_length)
{
    for (int s = 0; s < set_count; s++)
        for (size_t len = 0; len < 1100; len++)
            for (size_t to = 0; to < 64; to += 21)
                check_copy(sets[s], to, 63 - to, len);
}

TEST(far_copies_may_be_large)
{
    enum { LEN = (5 << 20) + 13 };
    static uint8_t source[LEN], target[LEN + 2];
    uint64_t seed = 11;
    for (size_t i = 0; i < LEN; i++)
        source[i] = (uint8_t)cases_next(&seed);
    for (int s = 0; s < set_count; s++) {
        memset(target, 0xa5, LEN + 2);
        sets[s]->copy_far(target + 1, source, LEN);
        assert_memory_equal(target + 1, source, LEN);
        assert_int_equal(target[0], 0xa5);
        assert_int_equal(target[LEN + 1], 0xa5);
    }
}
