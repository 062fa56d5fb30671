/* SPDX-License-Identifier: Apache-2.0 */
/* Fast hashes of bytes, the same on every machine: against accidents, not against attackers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t low, high;
};

struct hash128 hash128(const void *bytes, size_t len);
uint64_t hash64(uint64_t seed, const void *bytes, size_t len);
uint64_t hash_mix(uint64_t seed, uint64_t value); /* one more number into a running hash */
