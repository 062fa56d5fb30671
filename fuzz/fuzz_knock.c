/* SPDX-License-Identifier: Apache-2.0 */
/* A server name that a listener takes for a knock must be the one that its nonce makes. */
#include <stdlib.h>
#include <string.h>

#include "security/knock.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct secret *secret;
    uint8_t key[SECRET_LEN], nonce[KNOCK_NONCE_LEN];
    char again[KNOCK_LEN + 1];
    struct error error;

    memset(key, 1, sizeof(key));
    if (!secret && secret_from_bytes(key, "fuzz", &secret, &error))
        abort();
    if (knock_check(secret, (const char *)bytes, len) != KNOCK_GOOD)
        return 0;
    for (int i = 0; i < KNOCK_NONCE_LEN; i++) {
        char pair[3] = {(char)bytes[33 + 2 * i], (char)bytes[34 + 2 * i], '\0'};
        nonce[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    if (knock_make(secret, nonce, again) || len != KNOCK_LEN || memcmp(again, bytes, KNOCK_LEN) != 0)
        abort();
    return 0;
}
