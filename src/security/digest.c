/* SPDX-License-Identifier: Apache-2.0 */
/* Digests: SHA3-256, cut. */
#include "security/digest.h"

#include <string.h>

#include <nettle/sha3.h>

struct digest digest_of(const void *bytes, size_t len)
{
    struct sha3_256_ctx hash;
    struct digest digest;

    sha3_256_init(&hash);
    sha3_256_update(&hash, len, bytes);
    sha3_256_digest(&hash, sizeof digest.bytes, digest.bytes);
    return digest;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, DIGEST_LEN) == 0;
}
