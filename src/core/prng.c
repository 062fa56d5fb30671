/* SPDX-License-Identifier: Apache-2.0 */
/* xoshiro256** by Blackman and Vigna (2018), its state filled by splitmix64 as its authors advise. */
#include "core/prng.h"

#include <assert.h>

__extension__ typedef unsigned __int128 u128;

static uint64_t rotate_left(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void prng_init(struct prng *p, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        p->s[i] = splitmix64(&seed);
}

uint64_t prng_u64(struct prng *p)
{
    uint64_t *s = p->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

/* Lemire 2019: the high half of a product; draws again in the rare case that would favour some values. */
uint64_t prng_below(struct prng *p, uint64_t limit)
{
    assert(limit > 0);
    u128 product = (u128)prng_u64(p) * limit;

    if ((uint64_t)product < limit) {
        uint64_t uneven = -limit % limit;
        while ((uint64_t)product < uneven)
            product = (u128)prng_u64(p) * limit;
    }
    return (uint64_t)(product >> 64);
}

double prng_unit(struct prng *p)
{
    return (double)(prng_u64(p) >> 11) * 0x1p-53;
}
