/* SPDX-License-Identifier: Apache-2.0 */
/* The generator gives its published numbers, and derived draws keep their range. */
#include "core/prng.h"
#include "support/suite.h"

/* The published outputs of xoshiro256** for the state 1, 2, 3, 4. */
TEST(known_state_gives_known_numbers)
{
    static const uint64_t expected[] = {
        0x0000000000002d00, 0x0000000000000000, 0x000000005a007080, 0x10e0000000009d80, 0x10e0b61ce1009d80,
        0x0870021ce143ad00, 0xe071c3c2e143f089, 0x75a1690ef7a20380, 0x9309685b465c23f9, 0x284f3cc2e13e3c88};
    struct prng p = {{1, 2, 3, 4}};

    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_true(prng_u64(&p) == expected[i]);
}

/* The published outputs of splitmix64 for the seed 1234567. */
TEST(seeding_is_splitmix64)
{
    static const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                        4593380528125082431u};
    struct prng p;

    prng_init(&p, 1234567);
    assert_memory_equal(p.s, expected, sizeof expected);
}

TEST(seeds_repeat_and_differ)
{
    struct prng a, b, c;
    int equal = 0;

    prng_init(&a, 42);
    prng_init(&b, 42);
    prng_init(&c, 43);
    for (int i = 0; i < 1000; i++) {
        uint64_t x = prng_u64(&a);
        assert_true(x == prng_u64(&b));
        equal += x == prng_u64(&c);
    }
    assert_int_equal(equal, 0);
}

TEST(below_keeps_its_limit_and_is_even)
{
    static const uint64_t limits[] = {1,         2, 3, 10, 1000, (uint64_t)1 << 32, ((uint64_t)1 << 63) + 1,
                                      UINT64_MAX};
    uint64_t seen[10] = {0};
    struct prng p;

    prng_init(&p, 7);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        for (int j = 0; j < 1000; j++)
            assert_true(prng_below(&p, limits[i]) < limits[i]);
    for (int i = 0; i < 100000; i++)
        seen[prng_below(&p, 10)]++;
    /* Standard deviation of each is 95: ten of them never happens. */
    for (int i = 0; i < 10; i++)
        assert_in_range(seen[i], 9050, 10950);
}

TEST(unit_is_below_one_and_fills_its_range)
{
    struct prng p;
    double sum = 0, low = 1, high = 0;

    prng_init(&p, 8);
    for (int i = 0; i < 100000; i++) {
        double x = prng_unit(&p);
        assert_true(x >= 0 && x < 1);
        sum += x;
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    assert_true(sum > 49000 && sum < 51000);
    assert_true(low < 0.001 && high > 0.999);
}
