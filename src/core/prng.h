/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded generator (xoshiro256**): same seed, same numbers, everywhere. Not for secrets. */
#pragma once

#include <stdint.h>

struct prng {
    uint64_t s[4];
};

void prng_init(struct prng *p, uint64_t seed);
uint64_t prng_u64(struct prng *p);
uint64_t prng_below(struct prng *p, uint64_t limit); /* 0..limit-1 without bias; limit > 0 */
double prng_unit(struct prng *p);                    /* [0, 1), 53 bits */
