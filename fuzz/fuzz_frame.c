/* SPDX-License-Identifier: Apache-2.0 */
/* A header that is accepted must encode to the bytes it came from; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check(const uint8_t header[static FRAME_HEADER_LEN])
{
    uint8_t again[FRAME_HEADER_LEN];
    const char *what = NULL;
    struct frame f;

    int status = frame_decode(&f, header, &what);
    if (status == HEARTH_OK) {
        frame_encode(&f, again);
        if (memcmp(header, again, FRAME_HEADER_LEN) != 0)
            abort();
    } else if (status != HEARTH_PROTOCOL || !what) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t header[FRAME_HEADER_LEN];

    if (len < FRAME_HEADER_LEN)
        return 0;
    check(bytes);
    /* A fuzzer seldom guesses a checksum: mend it, to get behind it. */
    memcpy(header, bytes, FRAME_HEADER_LEN);
    store_u32(header + FRAME_HEADER_LEN - 4, crc32c(0, header, FRAME_HEADER_LEN - 4));
    check(header);
    return 0;
}
