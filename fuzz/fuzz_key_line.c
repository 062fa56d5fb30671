/* SPDX-License-Identifier: Apache-2.0 */
/* What is taken for a key file must be the line that its seed gives; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "security/base32.h"
#include "security/node_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const char *text = (const char *)bytes;
    uint8_t seed[KEY_SEED_LEN];
    char line[KEY_LINE_LEN];

    if (key_line_parse(text, len, seed))
        return 0;
    key_line_write(seed, line);
    if (len != KEY_LINE_LEN && len != KEY_LINE_LEN - 1)
        abort();
    for (size_t i = 0; i < len; i++)
        if (ascii_lower(text[i]) != line[i])
            abort();
    return 0;
}
