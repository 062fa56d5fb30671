/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing of what comes is believed: lengths are bounded before memory is taken. */
#include "cluster/message_reader.h"

#include <assert.h>
#include <string.h>

#define ROOM_MIN 1024u
#define ROOM_MAX 8192u /* more is given back after the message: peers are many, large messages are few */

void message_header_put(uint8_t target[static MESSAGE_HEADER_LEN], uint8_t kind, size_t len)
{
    assert(len <= MESSAGE_PAYLOAD_MAX);
    store_u16(target, MESSAGE_MAGIC);
    target[2] = MESSAGE_VERSION;
    target[3] = kind;
    store_u32(target + 4, (uint32_t)len);
}

int message_header_get(struct message_header *header, const uint8_t source[static MESSAGE_HEADER_LEN],
                       const char **what)
{
    *header = (struct message_header){source[3], load_u32(source + 4)};
    if (load_u16(source) != MESSAGE_MAGIC)
        *what = "what it says is no message of Hearth";
    else if (source[2] != MESSAGE_VERSION)
        *what = "its messages have another version";
    else if (header->kind == 0 || header->kind > MESSAGE_KIND_MAX)
        *what = "it sends a message of an unknown kind";
    else if (header->len > MESSAGE_PAYLOAD_MAX)
        *what = "it sends a message that is too long";
    else
        return HEARTH_OK;
    return HEARTH_PROTOCOL;
}

size_t message_hello_encode(const struct message_hello *hello, uint8_t *target)
{
    struct writer w = writer_of(target, MESSAGE_HELLO_MAX);

    put_u16(&w, hello->version_min);
    put_u16(&w, hello->version_max);
    put_u8(&w, hello->purpose);
    put_bytes(&w, (const uint8_t[3]){0}, 3);
    put_u32(&w, hello->serial);
    peer_info_put(&w, &hello->info);
    assert(!w.bad);
    return (size_t)(w.at - target);
}

int message_hello_decode(struct message_hello *hello, const void *source, size_t len, const char **what)
{
    struct reader r = reader_of(source, len);
    uint8_t rest[3];

    hello->version_min = get_u16(&r);
    hello->version_max = get_u16(&r);
    hello->purpose = get_u8(&r);
    get_bytes(&r, rest, sizeof rest);
    hello->serial = get_u32(&r);
    if (r.bad || !bytes_zero(rest, sizeof rest) || hello->version_min == 0 ||
        hello->version_min > hello->version_max)
        *what = "its hello is malformed";
    else if (hello->version_min > MESSAGE_VERSION)
        *what = "it speaks only newer versions of messages: update this node";
    else if (hello->purpose != HELLO_MESSAGES && hello->purpose != HELLO_PROBE)
        *what = "its hello has an unknown purpose";
    else if (!peer_info_get(&r, &hello->info) || r.bad || reader_left(&r) > 0)
        *what = "its hello does not describe a node";
    else
        return HEARTH_OK;
    return HEARTH_PROTOCOL;
}

void message_reader_init(struct message_reader *r, struct heap *heap)
{
    *r = (struct message_reader){.heap = heap};
}

void message_reader_fini(struct message_reader *r)
{
    heap_free(r->payload);
    r->payload = NULL;
    r->room = 0;
}

size_t message_reader_wants(struct message_reader *r, uint8_t **target)
{
    if (r->got < MESSAGE_HEADER_LEN) {
        *target = r->head + r->got;
        return MESSAGE_HEADER_LEN - r->got;
    }
    *target = r->payload + (r->got - MESSAGE_HEADER_LEN);
    return MESSAGE_HEADER_LEN + r->header.len - r->got;
}

static bool room_for(struct message_reader *r, size_t len)
{
    if (len <= r->room)
        return true;
    message_reader_fini(r);
    size_t room = len > ROOM_MIN ? len : ROOM_MIN;
    r->payload = heap_alloc_raw(r->heap, 1, room);
    r->room = r->payload ? room : 0;
    return r->payload;
}

int message_reader_got(struct message_reader *r, size_t len, const char **what)
{
    bool head = r->got < MESSAGE_HEADER_LEN;

    r->got += len;
    if (head && r->got < MESSAGE_HEADER_LEN)
        return HEARTH_PENDING;
    if (head && message_header_get(&r->header, r->head, what))
        return HEARTH_PROTOCOL;
    if (head && !room_for(r, r->header.len)) {
        *what = "no memory for its message";
        return HEARTH_NO_MEMORY;
    }
    return r->got == MESSAGE_HEADER_LEN + r->header.len ? HEARTH_OK : HEARTH_PENDING;
}

void message_reader_next(struct message_reader *r)
{
    r->got = 0;
    if (r->room > ROOM_MAX)
        message_reader_fini(r);
}
