/* SPDX-License-Identifier: Apache-2.0 */
/* A greeting that is accepted must encode to the bytes it came from; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "wire/greeting.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t again[GREETING_LEN];
    struct greeting g;
    const char *what = NULL;

    if (len < GREETING_LEN)
        return 0;
    if (greeting_decode(&g, bytes, &what)) {
        if (!what)
            abort();
        return 0;
    }
    greeting_encode(&g, again);
    if (memcmp(again, bytes, GREETING_LEN) != 0)
        abort();
    return 0;
}
