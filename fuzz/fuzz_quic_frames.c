/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a packet that anybody may have sent: nothing is read beyond them, and what stands before them
 * changes nothing. */
#include <stdlib.h>
#include <string.h>

#include "transport/quic_engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Of exactly this length, so that a byte too many is found. */
static bool retires(const uint8_t *before, size_t before_len, const uint8_t *bytes, size_t len)
{
    uint8_t *frames = malloc(before_len + len + 1);
    if (!frames)
        abort();
    uint8_t *at = frames + 1;
    if (before_len > 0)
        memcpy(at, before, before_len);
    if (len > 0)
        memcpy(at + before_len, bytes, len);
    bool found = quic_frames_retire(at, before_len + len);
    free(frames);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const uint8_t ping_and_ack[] = {0x01, 0x00, 0x02, 0x05, 0x00, 0x00, 0x05};
    static const uint8_t retire[] = {0x18, 0x01, 0x01, 0x01, 0xaa, 0,  1,  2,  3,  4, 5,
                                     6,    7,    8,    9,    10,   11, 12, 13, 14, 15};
    static const uint8_t to_the_end[] = {0x08, 0x00};
    bool found = retires(NULL, 0, bytes, len);
    if (retires(ping_and_ack, sizeof ping_and_ack, bytes, len) != found ||
        !retires(retire, sizeof retire, bytes, len) || retires(to_the_end, sizeof to_the_end, bytes, len))
        abort();
    return 0;
}
