/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that find the largest: every set gives what scalar gives, and scalar what is promised. */
#include "cases.h"
#include "kernel/sift.h"
#include "support/suite.h"

#define COUNT_MAX 600

static float x[COUNT_MAX], top[COUNT_MAX + 1], other_top[COUNT_MAX + 1];
static uint32_t index_found[COUNT_MAX + SIFT_SLACK + 1], index_other[COUNT_MAX + SIFT_SLACK + 1];

static uint32_t magnitude(float value)
{
    return f32_bits(value) & MAGNITUDE_BITS;
}

/* Any numbers, NaN among them; a few only, so that many are equal; or nothing but zeros. */
static void fill(uint64_t *seed, int kind, size_t count)
{
    cases_fill(seed, HEARTH_F32, x, COUNT_MAX);
    for (size_t i = 0; i < count && kind > 0; i++)
        x[i] = kind == 2 ? -0.0f : (float)(cases_next(seed) % 5) - 2;
}

static size_t reached(const float *from, size_t count, uint32_t least)
{
    size_t number = 0;
    for (size_t i = 0; i < count; i++)
        number += magnitude(from[i]) >= least;
    return number;
}

static void check_fold(size_t count, size_t width, size_t columns)
{
    uint32_t largest = sets[0]->sift->fold(x, count, width, columns, top), most = 0;
    for (size_t j = 0; j < columns; j++) {
        uint32_t expected = 0;
        for (size_t i = j; i < count; i += width)
            expected = magnitude(x[i]) > expected ? magnitude(x[i]) : expected;
        assert_int_equal(f32_bits(top[j]), expected);
        most = expected > most ? expected : most;
    }
    assert_int_equal(largest, most);
    for (int s = 1; s < set_count; s++) {
        memset(other_top, 0xee, sizeof other_top);
        assert_int_equal(sets[s]->sift->fold(x, count, width, columns, other_top), largest);
        assert_memory_equal(top, other_top, columns * sizeof *top);
        assert_int_equal(f32_bits(other_top[columns]), 0xeeeeeeee);
    }
}

TEST(folds_to_the_largest_of_groups)
{
    uint64_t seed = 1;
    for (size_t count = 1; count <= COUNT_MAX; count += count < 70 ? 1 : 43)
        for (size_t width = 1; width <= count; width = width < 10 ? width + 1 : width * 2) {
            fill(&seed, (int)(count % 3), count);
            check_fold(count, width, width);
            check_fold(count / width * width, width, width);
            check_fold(count, width, (width + 1) / 2);
        }
    fill(&seed, 0, COUNT_MAX);
    for (size_t columns = 16; columns <= 64; columns += 16)
        for (size_t count = 512; count <= 576; count += 16)
            check_fold(count, 64, columns);
}

TEST(climbs_to_where_enough_reach)
{
    uint64_t seed = 2;
    for (size_t count = 1; count <= COUNT_MAX; count += count < 70 ? 1 : 31)
        for (size_t keep = 1; keep <= count; keep = 2 * keep + 1) {
            fill(&seed, (int)(count % 3), count);
            struct sift_search start = {.keep = keep, .count = count, .top = 0x80000000, .step = 1};
            start.step = seed % 2 ? 1 : 1 << 18;
            start.guess = (uint32_t)cases_next(&seed);
            struct sift_search end = start;
            sift_climb(sets[0]->sift, x, count, &end);
            assert_int_equal(end.count, reached(x, count, end.bits));
            assert_true(end.count >= keep);
            assert_true(end.count == keep || end.top - end.bits <= end.step);
            assert_int_equal(end.above, end.top == 0x80000000 ? 0 : reached(x, count, end.top));
            assert_true(end.above < keep);
            for (int s = 1; s < set_count; s++) {
                struct sift_search same = start;
                sift_climb(sets[s]->sift, x, count, &same);
                assert_true(same.bits == end.bits && same.count == end.count);
                assert_true(same.top == end.top && same.above == end.above);
            }
        }
}

TEST(picks_all_that_reach)
{
    uint64_t seed = 3;
    for (size_t count = 0; count <= COUNT_MAX; count += count < 140 ? 1 : 23)
        for (int kind = 0; kind < 6; kind++) {
            fill(&seed, kind % 3, count);
            uint32_t least = kind == 5 || count == 0 ? 0 : magnitude(x[seed % count]);
            size_t found = sets[0]->sift->pick(x, count, least, 1000, index_found), at = 0;
            for (size_t i = 0; i < count; i++)
                if (magnitude(x[i]) >= least)
                    assert_int_equal(index_found[at++], 1000 + i);
            assert_int_equal(at, found);
            for (int s = 1; s < set_count; s++) {
                memset(index_other, 0xee, sizeof index_other);
                assert_int_equal(sets[s]->sift->pick(x, count, least, 1000, index_other), found);
                assert_memory_equal(index_found, index_other, found * sizeof *index_found);
                assert_int_equal(index_other[found + SIFT_SLACK], 0xeeeeeeee);
            }
        }
}
