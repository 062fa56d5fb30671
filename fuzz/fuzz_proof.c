/* SPDX-License-Identifier: Apache-2.0 */
/* A proof or refusal that is accepted must encode to the bytes it came from; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "security/proof.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t again[PROOF_LEN];
    struct proof_message message;
    const char *what = NULL;

    if (len < PROOF_LEN)
        return 0;
    if (proof_decode(&message, bytes, &what)) {
        if (!what)
            abort();
        return 0;
    }
    proof_encode(&message, again);
    if (memcmp(again, bytes, PROOF_LEN) != 0)
        abort();
    return 0;
}
