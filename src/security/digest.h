/* SPDX-License-Identifier: Apache-2.0 */
/* A collision-resistant digest. (core/hash.h is against accidents only.) */
#pragma once

#include "core/types.h"

#define DIGEST_LEN 16

/* The first 128 bits of SHA3-256. */
struct digest {
    uint8_t bytes[DIGEST_LEN];
};

struct digest digest_of(const void *bytes, size_t len);
bool digest_equal(const struct digest *a, const struct digest *b);
