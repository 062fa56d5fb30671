/* SPDX-License-Identifier: Apache-2.0 */
/* Medians and percentiles of small samples, and buffers that repeat a block. */
#include <math.h>

#include "cli/shared/stats.h"
#include "support/suite.h"

TEST(test_one_sample)
{
    double x[] = {7};
    struct stats s = stats_of(x, 1);
    assert_true(s.median == 7 && s.p99 == 7 && s.min == 7 && s.max == 7 && s.spread == 0);
}

TEST(test_median)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2};
    assert_true(stats_of(odd, 3).median == 3);
    assert_true(stats_of(even, 4).median == 2.5);
}

TEST(test_percentiles)
{
    double x[200];
    for (int i = 0; i < 200; i++)
        x[i] = 200 - i; /* 1..200, backwards */
    struct stats s = stats_of(x, 200);
    assert_true(s.p99 == 198 && s.min == 1 && s.max == 200);
    assert_true(fabs(s.spread - (180 - 20) / 100.5) < 1e-12);
    x[199] = 1e9; /* one outlier is beyond the 99th percentile of 200 */
    assert_true(stats_of(x, 200).p99 == 198);
}

TEST(test_pattern)
{
    static const uint8_t block[] = {1, 2, 3, 4, 5};
    uint8_t buffer[64];
    for (size_t len = 0; len <= sizeof buffer; len++) {
        memset(buffer, 0xee, sizeof buffer);
        pattern_fill(buffer, len, block, sizeof block);
        for (size_t i = 0; i < sizeof buffer; i++)
            assert_int_equal(buffer[i], i < len ? block[i % sizeof block] : 0xee);
        assert_true(pattern_holds(buffer, len, block, sizeof block));
        for (size_t i = 0; i < len; i++) {
            buffer[i] ^= 0x40;
            assert_false(pattern_holds(buffer, len, block, sizeof block));
            buffer[i] ^= 0x40;
        }
    }
}

TEST(test_encode)
{
    float f32;
    double f64;
    uint16_t half;
    int8_t i8;
    uint64_t u64;
    pattern_encode(HEARTH_F32, 100, &f32);
    pattern_encode(HEARTH_F64, 100, &f64);
    assert_true(f32 == 100 && f64 == 100);
    pattern_encode(HEARTH_F16, 1, &half);
    assert_int_equal(half, 0x3c00);
    pattern_encode(HEARTH_BF16, 1, &half);
    assert_int_equal(half, 0x3f80);
    pattern_encode(HEARTH_I8, 100, &i8);
    pattern_encode(HEARTH_U64, 100, &u64);
    assert_true(i8 == 100 && u64 == 100);
}
