/* SPDX-License-Identifier: Apache-2.0 */
/* Framing of control messages. Nothing of what arrives is believed: lengths are bounded before memory is
 * taken, and the checksum fits before anybody looks at a payload. */
#include "wire/message.h"

#include <assert.h>
#include <string.h>

#include "core/crc32c.h"

#define ROOM_MIN  1024u
#define ROOM_KEPT 8192u /* more is given back after use: connections are many, large messages are few */

enum message_offset { AT_MAGIC = 0, AT_VERSION = 2, AT_KIND = 3, AT_LENGTH = 4, AT_CRC = 8 };

static_assert(AT_CRC + 4 == MESSAGE_HEADER_LEN, "the checksum ends the header");

/* ---- header ------------------------------------------------------------------------------------------- */

static uint32_t crc_of(const uint8_t header[static MESSAGE_HEADER_LEN], const void *payload, size_t len)
{
    uint32_t crc = crc32c(0, header, AT_CRC);

    return len > 0 ? crc32c(crc, payload, len) : crc;
}

static void header_put(uint8_t kind, size_t len, uint8_t header[static MESSAGE_HEADER_LEN])
{
    assert(len <= UINT32_MAX);
    store_u16(header + AT_MAGIC, MESSAGE_MAGIC);
    header[AT_VERSION] = MESSAGE_VERSION;
    header[AT_KIND] = kind;
    store_u32(header + AT_LENGTH, (uint32_t)len);
}

void message_seal(uint8_t kind, const void *payload, size_t len, const void *more, size_t more_len,
                  uint8_t header[static MESSAGE_HEADER_LEN])
{
    header_put(kind, len + more_len, header);
    uint32_t crc = crc_of(header, payload, len);
    store_u32(header + AT_CRC, more_len > 0 ? crc32c(crc, more, more_len) : crc);
}

static uint32_t len_max(const struct message_kinds *kinds, uint8_t kind)
{
    return kind >= kinds->first && kind <= kinds->last ? kinds->len_max[kind - kinds->first] : 0;
}

int message_header_decode(struct message_header *h, const uint8_t source[static MESSAGE_HEADER_LEN],
                          const struct message_kinds *kinds, const char **what)
{
    uint32_t max = len_max(kinds, source[AT_KIND]), len = load_u32(source + AT_LENGTH);

    if (load_u16(source + AT_MAGIC) != MESSAGE_MAGIC)
        *what = "magic: not a control message of Hearth";
    else if (source[AT_VERSION] != MESSAGE_VERSION)
        *what = "version: control messages of another version of Hearth";
    else if (max == 0)
        *what = "kind: unknown, or not expected here";
    else if (len > max)
        *what = "length: more than this kind of message may have";
    else {
        *h = (struct message_header){source[AT_KIND], len, load_u32(source + AT_CRC)};
        return HEARTH_OK;
    }
    return HEARTH_PROTOCOL;
}

bool message_intact(const struct message_header *h, const void *payload)
{
    uint8_t header[MESSAGE_HEADER_LEN];

    header_put(h->kind, h->len, header);
    return crc_of(header, payload, h->len) == h->crc;
}

/* ---- reader ------------------------------------------------------------------------------------------- */

void message_reader_init(struct message_reader *r, struct heap *heap, const struct message_kinds *kinds)
{
    *r = (struct message_reader){.heap = heap, .kinds = kinds};
}

void message_reader_fini(struct message_reader *r)
{
    heap_free(r->payload);
    r->payload = NULL;
    r->room = 0;
}

bool message_reader_reserve(struct message_reader *r, size_t len)
{
    if (len <= r->room)
        return true;
    message_reader_fini(r);
    size_t room = len > ROOM_MIN ? len : ROOM_MIN;
    r->payload = heap_alloc_raw(r->heap, 1, room);
    r->room = r->payload ? room : 0;
    return r->payload;
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

int message_reader_got(struct message_reader *r, size_t len, const char **what)
{
    bool head = r->got < MESSAGE_HEADER_LEN;

    r->got += len;
    if (r->got < MESSAGE_HEADER_LEN)
        return HEARTH_PENDING;
    if (head && message_header_decode(&r->header, r->head, r->kinds, what))
        return HEARTH_PROTOCOL;
    if (head && !message_reader_reserve(r, r->header.len)) {
        *what = "no memory for a message";
        return HEARTH_NO_MEMORY;
    }
    if (r->got < MESSAGE_HEADER_LEN + r->header.len)
        return HEARTH_PENDING;
    if (!message_intact(&r->header, r->payload)) {
        *what = "crc: the message was damaged on its way";
        return HEARTH_PROTOCOL;
    }
    return HEARTH_OK;
}

int message_reader_feed(struct message_reader *r, struct reader *in, const char **what)
{
    int status = HEARTH_PENDING;

    while (status == HEARTH_PENDING && reader_left(in) > 0) {
        uint8_t *target;
        size_t wants = message_reader_wants(r, &target), left = reader_left(in);
        size_t len = wants < left ? wants : left;
        get_bytes(in, target, len);
        status = message_reader_got(r, len, what);
    }
    return status;
}

void message_reader_next(struct message_reader *r)
{
    r->got = 0;
    if (r->room > ROOM_KEPT)
        message_reader_fini(r);
}

/* ---- queue -------------------------------------------------------------------------------------------- */

void message_queue_init(struct message_queue *q, struct heap *heap, size_t max)
{
    *q = (struct message_queue){.heap = heap, .max = max};
}

void message_queue_fini(struct message_queue *q)
{
    heap_free(q->bytes);
    message_queue_init(q, q->heap, q->max);
}

void message_queue_clear(struct message_queue *q)
{
    q->start = q->len = q->shared_at = q->shared_len = 0;
}

/* Room for so many bytes behind those that wait. */
bool message_queue_reserve(struct message_queue *q, size_t len)
{
    size_t room = q->room > 0 ? q->room : ROOM_MIN;

    if (len > q->max - q->len)
        return false;
    if (q->start + q->len + len <= q->room)
        return true;
    while (room < q->len + len)
        room *= 2;
    uint8_t *bytes = room > q->room ? heap_alloc_raw(q->heap, 1, room) : q->bytes;
    if (!bytes)
        return false;
    if (q->len > 0)
        memmove(bytes, q->bytes + q->start, q->len);
    if (bytes != q->bytes)
        heap_free(q->bytes);
    q->bytes = bytes;
    q->room = room;
    q->start = 0;
    return true;
}

bool message_queue_put_shared(struct message_queue *q, uint8_t kind, const void *payload, size_t len,
                              const void *shared, size_t shared_len)
{
    assert(shared_len == 0 || q->shared_len == 0);
    if (len > q->max || !message_queue_reserve(q, MESSAGE_HEADER_LEN + len))
        return false;
    uint8_t *end = q->bytes + q->start + q->len;
    message_seal(kind, payload, len, shared, shared_len, end);
    if (len > 0)
        memcpy(end + MESSAGE_HEADER_LEN, payload, len);
    q->len += MESSAGE_HEADER_LEN + len;
    if (shared_len > 0) {
        q->shared = shared;
        q->shared_len = shared_len;
        q->shared_at = q->len;
    }
    return true;
}

bool message_queue_put(struct message_queue *q, uint8_t kind, const void *payload, size_t len)
{
    return message_queue_put_shared(q, kind, payload, len, NULL, 0);
}

size_t message_queue_len(const struct message_queue *q)
{
    return q->len + q->shared_len;
}

/* What is in front: of its own bytes those before the shared ones, if there are any, then the shared ones. */
static size_t front_len(const struct message_queue *q)
{
    if (q->shared_len == 0)
        return q->len;
    return q->shared_at > 0 ? q->shared_at : q->shared_len;
}

static bool front_shared(const struct message_queue *q)
{
    return q->shared_len > 0 && q->shared_at == 0;
}

size_t message_queue_front(const struct message_queue *q, size_t max, const uint8_t **bytes)
{
    size_t len = front_len(q);

    if (len > 0)
        *bytes = front_shared(q) ? q->shared : q->bytes + q->start;
    return len < max ? len : max;
}

void message_queue_sent(struct message_queue *q, size_t len)
{
    assert(len <= front_len(q));
    if (front_shared(q)) {
        q->shared += len;
        q->shared_len -= len;
    } else {
        q->start += len;
        q->len -= len;
        q->shared_at -= q->shared_len > 0 ? len : 0;
    }
    if (q->len > 0)
        return;
    q->start = 0;
    if (q->room > ROOM_KEPT && q->shared_len == 0)
        message_queue_fini(q);
}
