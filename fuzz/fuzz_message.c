/* SPDX-License-Identifier: Apache-2.0 */
/* What a proven peer may send: messages in pieces (the first byte draws their sizes), hellos among them. What
 * is accepted must encode to the same again; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "cluster/message_reader.h"
#include "core/prng.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_hello(const struct message_reader *r)
{
    uint8_t once[MESSAGE_HELLO_MAX], twice[MESSAGE_HELLO_MAX];
    struct message_hello hello, again;
    const char *what = NULL;

    if (message_hello_decode(&hello, r->payload, r->header.len, &what)) {
        if (!what)
            abort();
        return;
    }
    size_t len = message_hello_encode(&hello, once);
    if (len > r->header.len || message_hello_decode(&again, once, len, &what))
        abort();
    if (message_hello_encode(&again, twice) != len || memcmp(once, twice, len) != 0)
        abort();
}

/* False: the connection ends. */
static bool take(struct message_reader *r, size_t len)
{
    const char *what = NULL;
    int status = message_reader_got(r, len, &what);

    if (status == HEARTH_PENDING)
        return true;
    if (status != HEARTH_OK) {
        if (!what)
            abort();
        return false;
    }
    if (r->header.kind == 0 || r->header.kind > MESSAGE_KIND_MAX || r->header.len > MESSAGE_PAYLOAD_MAX)
        abort();
    if (r->header.kind == MESSAGE_HELLO)
        check_hello(r);
    message_reader_next(r);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct heap heap;
    struct message_reader reader;
    struct prng prng;
    bool open = true;

    if (len < 1)
        return 0;
    heap_init(&heap, 0);
    message_reader_init(&reader, &heap);
    prng_init(&prng, bytes[0]);
    for (size_t at = 1; at < len && open;) {
        uint8_t *target;
        size_t wants = message_reader_wants(&reader, &target);
        size_t piece = 1 + (bytes[0] < 128 ? prng_below(&prng, 64) : prng_below(&prng, 20000));
        piece = piece < wants ? piece : wants;
        piece = piece < len - at ? piece : len - at;
        memcpy(target, bytes + at, piece);
        at += piece;
        open = take(&reader, piece);
    }
    message_reader_fini(&reader);
    if (heap.blocks != 0)
        abort();
    return 0;
}
