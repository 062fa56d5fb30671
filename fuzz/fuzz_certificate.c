/* SPDX-License-Identifier: Apache-2.0 */
/* A peer's certificate, which is read before the peer is proven: no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "security/certificate.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t key[PUBLIC_KEY_LEN], again[PUBLIC_KEY_LEN];

    if (certificate_key(bytes, len, key) == HEARTH_OK &&
        (certificate_key(bytes, len, again) || memcmp(key, again, sizeof key) != 0))
        abort();
    return 0;
}
