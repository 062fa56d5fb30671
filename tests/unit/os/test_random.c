/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes come in any number and do not repeat. */
#include "os/random.h"
#include "support/suite.h"

TEST(draws_differ)
{
    uint8_t draws[16][32];

    for (int i = 0; i < 16; i++) {
        assert_int_equal(random_bytes(draws[i], sizeof draws[i]), HEARTH_OK);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(draws[i], draws[j], sizeof draws[i]);
    }
}

TEST(only_the_asked_bytes_are_written)
{
    for (size_t len = 0; len <= 40; len++) {
        uint8_t bytes[48];
        memset(bytes, 0x55, sizeof bytes);
        assert_int_equal(random_bytes(bytes, len), HEARTH_OK);
        for (size_t i = len; i < sizeof bytes; i++)
            assert_int_equal(bytes[i], 0x55);
    }
}

/* More than one call of the system may give at once. */
TEST(large_draws_are_filled_to_the_end)
{
    size_t len = (size_t)1 << 20, ones = 0;
    uint8_t *bytes = calloc(len, 1);

    assert_non_null(bytes);
    assert_int_equal(random_bytes(bytes, len), HEARTH_OK);
    for (size_t i = len - 1024; i < len; i++)
        ones += (size_t)__builtin_popcount(bytes[i]);
    /* 8192 bits, deviation 45: ten of them never happens. */
    assert_in_range(ones, 4096 - 450, 4096 + 450);
    free(bytes);
}
