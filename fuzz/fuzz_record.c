/* SPDX-License-Identifier: Apache-2.0 */
/* A record that is accepted must encode to the bytes it came from; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"
#include "wire/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define HELLO_LEN 24 /* of this version; a later one's may be longer */

/* The record's bytes after decoding and encoding, 0 if it was refused. */
static size_t round_trip(uint8_t type, const uint8_t *bytes, size_t len, uint8_t target[FRAME_CONTROL_MAX])
{
    struct hello_record hello;
    struct call_record call;
    struct error error;

    switch (type) {
    case 0:
        return hello_decode(&hello, bytes, len) ? 0 : hello_encode(&hello, target, FRAME_CONTROL_MAX);
    case 1:
        return call_decode(&call, bytes, len) ? 0 : call_encode(&call, target, FRAME_CONTROL_MAX);
    case 2:
        return error_decode(&error, bytes, len) ? 0 : error_encode(&error, target, FRAME_CONTROL_MAX);
    default:
        return 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t again[FRAME_CONTROL_MAX];

    if (len < 1)
        return 0;
    size_t again_len = round_trip(bytes[0], bytes + 1, len - 1, again);
    if (again_len == 0)
        return 0;
    size_t expected_len = bytes[0] == 0 ? HELLO_LEN : len - 1;
    if (again_len != expected_len || memcmp(again, bytes + 1, again_len) != 0)
        abort();
    return 0;
}
