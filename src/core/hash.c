/* SPDX-License-Identifier: Apache-2.0 */
/* A 128-bit hash at about the speed of memory, and small ones made of the same parts.
 *
 * The bytes are read as little-endian words, eight to a block of 64 bytes; the last block is filled up with
 * zeros (the length is mixed in at the end). Four lanes work side by side on a block:
 *
 *     words    w0 w1    w2 w3    w4 w5    w6 w7
 *               \ /      \ /      \ /      \ /
 *     product  lane0    lane1    lane2    lane3    their 128-bit product, folded to 64
 *     sum      w0 w3    w2 w5    w4 w7    w6 w1    rotated and added
 *
 * Each word goes into the product of one lane and the sum of a lane, and the two words of a product go into
 * different sums. So a change of one word always changes the state, whatever the product does, and a change
 * of several has to meet by accident in a product and in a sum at once. */
#include "core/hash.h"

#include <string.h>

#include "core/bytes.h"

__extension__ typedef unsigned __int128 u128;

#define BLOCK_LEN 64
#define LANES     4

/* The fractional parts of the square roots of the first primes: numbers with nothing up their sleeves. */
static const uint64_t mask[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
    UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
};

struct state {
    uint64_t product[LANES], sum[LANES];
};

static inline uint64_t rotate_left(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline uint64_t fold(uint64_t a, uint64_t b)
{
    u128 product = (u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* For a given seed no two values collide, and for a given value no two seeds: every step can be undone. */
uint64_t hash_mix(uint64_t seed, uint64_t value)
{
    uint64_t x = rotate_left(seed, 23) + value * mask[1] + mask[3];

    x = (x ^ x >> 32) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 29) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 32;
}

static inline void lane_add(struct state *s, int lane, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t product = s->product[lane];

    /* The old product is added to the new one, so that a factor of zero cannot wipe out the past. */
    s->product[lane] = fold(a ^ mask[lane], b ^ product) ^ rotate_left(product, 31);
    s->sum[lane] = rotate_left(s->sum[lane] + a, 27) + c;
}

static void blocks_add(struct state *state, const uint8_t *at, size_t count)
{
    struct state s = *state; /* a copy that lives in registers */

    for (; count > 0; count--, at += BLOCK_LEN) {
        const uint64_t w[8] = {load_u64(at),      load_u64(at + 8),  load_u64(at + 16), load_u64(at + 24),
                               load_u64(at + 32), load_u64(at + 40), load_u64(at + 48), load_u64(at + 56)};
        lane_add(&s, 0, w[0], w[1], w[3]);
        lane_add(&s, 1, w[2], w[3], w[5]);
        lane_add(&s, 2, w[4], w[5], w[7]);
        lane_add(&s, 3, w[6], w[7], w[1]);
    }
    *state = s;
}

static struct hash128 digest(uint64_t seed, const void *bytes, size_t len)
{
    size_t count = len / BLOCK_LEN, left = len % BLOCK_LEN;
    uint8_t last[BLOCK_LEN] = {0};
    struct state s;

    for (int i = 0; i < LANES; i++) {
        s.product[i] = hash_mix(seed, mask[4 + i]);
        s.sum[i] = seed ^ mask[i];
    }
    blocks_add(&s, bytes, count);
    if (left > 0) {
        memcpy(last, (const uint8_t *)bytes + count * BLOCK_LEN, left);
        blocks_add(&s, last, 1);
    }

    struct hash128 h = {hash_mix(mask[6], len), hash_mix(mask[7], len)};
    for (int i = 0; i < LANES; i++) {
        h.low = hash_mix(hash_mix(h.low, s.product[i]), s.sum[i]);
        h.high = hash_mix(hash_mix(h.high, s.sum[LANES - 1 - i]), s.product[LANES - 1 - i]);
    }
    return h;
}

struct hash128 hash128(const void *bytes, size_t len)
{
    return digest(0, bytes, len);
}

uint64_t hash64(uint64_t seed, const void *bytes, size_t len)
{
    return digest(seed, bytes, len).low;
}
