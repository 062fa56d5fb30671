/* SPDX-License-Identifier: Apache-2.0 */
/* The hashes are the same everywhere, see every bit, length and place, and spread what they see. */
#include "core/hash.h"
#include "core/prng.h"
#include "support/suite.h"

static void fill(uint8_t *bytes, size_t len, uint64_t seed)
{
    struct prng p;

    prng_init(&p, seed);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)prng_u64(&p);
}

/* Values that went over the wire once must come out for ever, on every machine. */
TEST(values_never_change)
{
    uint8_t bytes[300];

    fill(bytes, sizeof bytes, 5);
    struct hash128 none = hash128(NULL, 0), few = hash128("hearth", 6), many = hash128(bytes, sizeof bytes);
    uint64_t seeded = hash64(7, bytes, sizeof bytes);
    uint64_t mixed = hash_mix(hash_mix(0, 1), 2);

    assert_true(none.low == UINT64_C(0x2cdf2539976d4017) && none.high == UINT64_C(0x97c0f0233c4aa633));
    assert_true(few.low == UINT64_C(0x0b482458c5fc5ccc) && few.high == UINT64_C(0x62c205a76c41d840));
    assert_true(many.low == UINT64_C(0x890600677b895e6a) && many.high == UINT64_C(0xb049adbd43b79e45));
    assert_true(seeded == UINT64_C(0x6345fd33838ab57b));
    assert_true(mixed == UINT64_C(0xde60a792fac40ab3));
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void assert_distinct(uint64_t *values, size_t count)
{
    qsort(values, count, sizeof values[0], compare_u64);
    for (size_t i = 1; i < count; i++)
        assert_true(values[i - 1] != values[i]);
}

TEST(lengths_differ_even_of_zeros)
{
    uint8_t bytes[301] = {0};
    uint64_t low[301], high[301], seeded[301];

    for (size_t len = 0; len <= 300; len++) {
        low[len] = hash128(bytes, len).low;
        high[len] = hash128(bytes, len).high;
        seeded[len] = hash64(1, bytes, len);
    }
    assert_distinct(low, 301);
    assert_distinct(high, 301);
    assert_distinct(seeded, 301);
}

TEST(alignment_does_not_matter)
{
    uint8_t bytes[400], moved[400];

    fill(bytes, sizeof bytes, 2);
    for (size_t len = 0; len <= 300; len += 1 + len / 16) {
        struct hash128 expected = hash128(bytes, len);
        for (size_t at = 0; at < 65; at++) {
            memcpy(moved + at, bytes, len);
            struct hash128 h = hash128(moved + at, len);
            assert_true(h.low == expected.low && h.high == expected.high);
        }
    }
}

/* Flipping one bit of the input flips each bit of the result with probability one half. Over the trials the
 * count of flips of each (input bit, output bit) pair is binomial: 256 trials, deviation 8. Six deviations
 * happen by chance in about one of 5e8 pairs. */
static void one_bit_flips_half_of_all(size_t len)
{
    enum { TRIALS = 256, SLACK = 50 };
    size_t bits = len * 8;
    uint16_t(*flips)[128] = calloc(bits, sizeof *flips);
    uint8_t bytes[256];

    assert_true(len <= sizeof bytes);
    assert_non_null(flips);
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        fill(bytes, len, 1000 + trial);
        struct hash128 before = hash128(bytes, len);
        for (size_t bit = 0; bit < bits; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            struct hash128 after = hash128(bytes, len);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            for (int i = 0; i < 64; i++) {
                flips[bit][i] = (uint16_t)(flips[bit][i] + ((before.low ^ after.low) >> i & 1));
                flips[bit][64 + i] = (uint16_t)(flips[bit][64 + i] + ((before.high ^ after.high) >> i & 1));
            }
        }
    }
    for (size_t bit = 0; bit < bits; bit++)
        for (int i = 0; i < 128; i++)
            assert_in_range(flips[bit][i], TRIALS / 2 - SLACK, TRIALS / 2 + SLACK);
    free(flips);
}

TEST(avalanche)
{
    static const size_t lens[] = {1, 8, 63, 64, 150};
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
        one_bit_flips_half_of_all(lens[i]);
}

/* The accidents that replicas have: one element off by one bit, two elements swapped, a block moved. */
TEST(small_differences_in_a_large_buffer_are_seen)
{
    enum { LEN = 4096 };
    uint8_t bytes[LEN];
    uint64_t *seen = malloc(LEN * 8 * sizeof *seen);
    size_t count = 0;

    assert_non_null(seen);
    memset(bytes, 0, LEN);
    for (size_t bit = 0; bit < (size_t)LEN * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        seen[count++] = hash128(bytes, LEN).high;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_distinct(seen, count);

    fill(bytes, LEN, 3);
    count = 0;
    seen[count++] = hash128(bytes, LEN).low;
    for (size_t i = 0; i + 8 <= LEN; i += 4) {
        uint8_t swapped[LEN];
        memcpy(swapped, bytes, LEN);
        memcpy(swapped + i, bytes + i + 4, 4);
        memcpy(swapped + i + 4, bytes + i, 4);
        seen[count++] = hash128(swapped, LEN).low;
    }
    for (size_t i = 64; i < LEN; i += 64) {
        uint8_t turned[LEN];
        memcpy(turned, bytes + i, LEN - i);
        memcpy(turned + LEN - i, bytes, i);
        seen[count++] = hash128(turned, LEN).low;
    }
    assert_distinct(seen, count);
    free(seen);
}

TEST(seeds_and_order_matter)
{
    uint64_t seen[2000];

    for (uint64_t seed = 0; seed < 1000; seed++) {
        seen[2 * seed] = hash64(seed, "abc", 3);
        seen[2 * seed + 1] = hash_mix(seed, 0);
    }
    assert_distinct(seen, 2000);
    for (uint64_t i = 0; i < 2000; i++)
        seen[i] = hash_mix(0, i);
    assert_distinct(seen, 2000);
    assert_true(hash_mix(hash_mix(0, 1), 2) != hash_mix(hash_mix(0, 2), 1));
}
