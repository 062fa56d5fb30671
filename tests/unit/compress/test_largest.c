/* SPDX-License-Identifier: Apache-2.0 */
/* topk of a whole tensor against sorting: whatever the numbers, the hint and the kernels. */
#include <math.h>

#include "compress/sparse.h"
#include "core/prng.h"
#include "numbers.h"
#include "support/suite.h"

#define COUNT_MAX 40000

static float x[COUNT_MAX], e[COUNT_MAX], acc[COUNT_MAX], e_new[COUNT_MAX], found_value[COUNT_MAX];
static uint32_t found_index[COUNT_MAX], expected[COUNT_MAX], rest_index[COUNT_MAX];
static float rest_value[COUNT_MAX];

/* With scratch behind which an address sanitizer sees. */
static int select_from(const struct kernels *set, struct topk_hint *hint, const struct feed *feed,
                       size_t count, struct sparse *found)
{
    size_t keep = found->count;
    struct topk_job job = {.kernels = set, .scratch = malloc(topk_scratch_len(count, keep)), .hint = hint};
    assert_non_null(job.scratch);
    found->count = 5;
    int status = topk_select(&job, feed, count, keep, found);
    assert_int_equal(found->count, status == HEARTH_OK ? keep : 5);
    if (status == HEARTH_OK)
        assert_memory_equal(found_index, expected, keep * sizeof *expected);
    free(job.scratch);
    return status;
}

/* The result for what is in x, e and acc = x + e. */
static void check(const struct kernels *set, struct topk_hint *hint, size_t count, size_t keep)
{
    struct feed feed = {.dtype = HEARTH_F32, .x = x, .e = e, .e_new = e_new, .gain = 1};
    struct sparse found = {keep, found_index, found_value};
    assert_int_equal(select_from(set, hint, &feed, count, &found), 0);
    assert_memory_equal(e_new, acc, count * sizeof *acc);
    for (size_t i = 0; i < keep; i++)
        assert_memory_equal(&found_value[i], &acc[found_index[i]], sizeof(float));
}

static void fill(enum numbers kind, uint64_t seed, size_t count)
{
    numbers_fill(kind, seed, x, count);
    numbers_fill(kind == NUMBERS_WIDE ? NUMBERS_ZERO : kind, seed + 1, e, count);
    for (size_t i = 0; i < count; i++)
        acc[i] = x[i] + e[i];
}

TEST(finds_what_sorting_finds)
{
    static const size_t counts[] = {1, 2, 65, 1000, 4096, 4097, 20001, COUNT_MAX};
    static const size_t shares[] = {100000, 1000, 100, 10, 2, 1};
    for (int kind = 0; kind < NUMBERS_KINDS; kind++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            size_t keep = (counts[c] + shares[(c + (size_t)kind) % 6] - 1) / shares[(c + (size_t)kind) % 6];
            fill((enum numbers)kind, c, counts[c]);
            numbers_largest(acc, counts[c], keep, expected);
            for (int s = 0; s < set_count; s++) {
                struct topk_hint hint = {0};
                check(sets[s], NULL, counts[c], keep);
                check(sets[s], &hint, counts[c], keep);
                check(sets[s], &hint, counts[c], keep);
            }
        }
}

TEST(hints_change_nothing)
{
    static const uint32_t absurd[] = {1,          0x00800000, 0x3f800000, 0x40400000,
                                      0x7f7fffff, 0x7f800000, 0xffffffff};
    for (int kind = 0; kind < NUMBERS_KINDS; kind++) {
        fill((enum numbers)kind, 7, 30000);
        numbers_largest(acc, 30000, 300, expected);
        struct topk_hint hint = {0};
        check(sets[0], &hint, 30000, 300);
        for (size_t h = 0; h < sizeof absurd / sizeof absurd[0]; h++)
            for (int s = 0; s < set_count; s++) {
                struct topk_hint bad = {absurd[h]};
                check(sets[s], &bad, 30000, 300);
                assert_int_equal(bad.threshold, hint.threshold);
            }
    }
}

TEST(the_hint_is_the_least_chosen)
{
    struct topk_hint hint = {0};
    uint32_t least = UINT32_MAX;
    fill(NUMBERS_GAUSS, 3, COUNT_MAX);
    numbers_largest(acc, COUNT_MAX, 400, expected);
    for (size_t i = 0; i < 400; i++)
        least = magnitude_of(acc[expected[i]]) < least ? magnitude_of(acc[expected[i]]) : least;
    check(sets[0], &hint, COUNT_MAX, 400);
    assert_int_equal(hint.threshold, least);
}

/* In place, where a second pass cannot read what the first one read. */
TEST(the_residual_may_be_its_own_shadow)
{
    struct topk_hint hint = {0x7f7fffff}; /* nothing is found at first */
    struct feed feed = {.dtype = HEARTH_F32, .x = x, .e = e, .e_new = e, .gain = 1};
    struct sparse found = {777, found_index, found_value};
    fill(NUMBERS_GAUSS, 11, COUNT_MAX);
    numbers_largest(acc, COUNT_MAX, 777, expected);
    assert_int_equal(select_from(sets[set_count - 1], &hint, &feed, COUNT_MAX, &found), 0);
    assert_memory_equal(e, acc, sizeof acc);
}

TEST(doubles_are_chosen_as_floats)
{
    static double wide[COUNT_MAX], wide_e[COUNT_MAX], wide_new[COUNT_MAX];
    fill(NUMBERS_GAUSS, 21, 9000);
    for (size_t i = 0; i < 9000; i++) {
        wide[i] = (double)x[i] / 3;
        wide_e[i] = (double)e[i] / 7;
        acc[i] = (float)(0.5 * wide[i] + wide_e[i]);
    }
    numbers_largest(acc, 9000, 90, expected);
    for (int bad_hint = 0; bad_hint < 2; bad_hint++) {
        struct topk_hint hint = {bad_hint ? 0x7f7fffff : 0};
        struct feed feed = {.dtype = HEARTH_F64, .x = wide, .e = wide_e, .e_new = wide_new, .gain = 0.5f};
        struct sparse found = {90, found_index, found_value};
        assert_int_equal(select_from(sets[0], &hint, &feed, 9000, &found), 0);
        for (size_t i = 0; i < 9000; i++)
            assert_true(wide_new[i] == 0.5 * wide[i] + wide_e[i]);
        for (size_t i = 0; i < 90; i++)
            assert_true(found_value[i] == acc[found_index[i]]);
    }
}

TEST(halves_are_chosen_with_their_residual)
{
    static uint16_t halves[COUNT_MAX];
    fill(NUMBERS_GAUSS, 31, 5000);
    sets[0]->narrow(HEARTH_BF16, halves, x, 5000);
    sets[0]->widen(HEARTH_BF16, x, halves, 5000);
    for (size_t i = 0; i < 5000; i++)
        acc[i] = x[i] + e[i];
    numbers_largest(acc, 5000, 50, expected);
    struct feed feed = {.dtype = HEARTH_BF16, .x = halves, .e = e, .e_new = e_new, .gain = 1};
    struct sparse found = {50, found_index, found_value};
    assert_int_equal(select_from(sets[0], NULL, &feed, 5000, &found), 0);
    assert_memory_equal(e_new, acc, 5000 * sizeof *acc);
}

TEST(poison_is_seen)
{
    static const float poisons[] = {NAN, INFINITY, -INFINITY, 0x1.fffffep127f};
    for (int p = 0; p < 4; p++) {
        struct topk_hint hint = {0x40000000};
        struct feed feed = {.dtype = HEARTH_F32, .x = x, .e = e, .e_new = e_new, .gain = 1};
        struct sparse found = {100, found_index, found_value};
        fill(NUMBERS_GAUSS, 41, 10000);
        x[9999] = e[9999] = poisons[p];
        assert_int_equal(select_from(sets[set_count - 1], &hint, &feed, 10000, &found), HEARTH_POISONED);
        assert_int_equal(hint.threshold, 0x40000000);
    }
}

TEST(memory_is_bounded)
{
    fill(NUMBERS_RISING, 51, COUNT_MAX);
    numbers_largest(acc, COUNT_MAX, 10, expected);
    assert_true(topk_scratch_len(COUNT_MAX, 10) < COUNT_MAX * sizeof(float));
    check(sets[0], NULL, COUNT_MAX, 10);
}

TEST(lists_are_chosen_from)
{
    for (int kind = 0; kind < NUMBERS_KINDS; kind++)
        for (size_t keep = 0; keep <= 1000; keep = 3 * keep + 1) {
            size_t count = 700, stays = keep < count ? keep : count, at = 0, gone = 0;
            numbers_fill((enum numbers)kind, keep, acc, count);
            for (size_t i = 0; i < count; i++)
                found_index[i] = (uint32_t)(3 * i + 1);
            memcpy(found_value, acc, count * sizeof *acc);
            struct sparse list = {count, found_index, found_value}, rest = {9, rest_index, rest_value};
            numbers_largest(acc, count, stays, expected);
            sparse_choose(&list, keep, &rest);
            assert_int_equal(list.count, stays);
            assert_int_equal(rest.count, count - stays);
            for (size_t i = 0; i < count; i++) {
                bool chosen = at < stays && expected[at] == i;
                assert_int_equal(chosen ? list.index[at] : rest.index[gone], 3 * i + 1);
                assert_memory_equal(chosen ? &list.value[at] : &rest.value[gone], &acc[i], sizeof(float));
                at += chosen;
                gone += !chosen;
            }
        }
}
