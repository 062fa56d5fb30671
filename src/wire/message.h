/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: all that is said outside of links, at the rendezvous, between nodes of a cluster and
 * on new sockets. One header, one checksum, one reader and one queue for all of them; each protocol brings
 * the table of the kinds that it takes. docs/wire.md is the law. No I/O. */
#pragma once

#include "core/bytes.h"
#include "core/error.h"
#include "core/heap.h"

#define MESSAGE_MAGIC      0x4d48u /* "HM", little endian */
#define MESSAGE_VERSION    2u
#define MESSAGE_HEADER_LEN 12u

/* What a receiver takes. Kinds of different protocols have different numbers. */
struct message_kinds {
    uint8_t first, last;
    const uint32_t *len_max; /* [last - first + 1]: bytes of payload; 0: the kind is refused */
};

struct message_header {
    uint8_t kind;
    uint32_t len, crc; /* len: of the payload */
};

/* Writes the header of a payload, which may stand in two pieces. */
void message_seal(uint8_t kind, const void *payload, size_t len, const void *more, size_t more_len,
                  uint8_t header[static MESSAGE_HEADER_LEN]);
/* HEARTH_OK, or HEARTH_PROTOCOL with which field is wrong: all that can be seen before the payload is there.
 */
int MUST_CHECK message_header_decode(struct message_header *h,
                                     const uint8_t source[static MESSAGE_HEADER_LEN],
                                     const struct message_kinds *kinds, const char **what);
bool message_intact(const struct message_header *h, const void *payload); /* the checksum fits */

/* Puts messages together from whatever pieces arrive. Takes memory for a payload only when its header has
 * passed, and never wants bytes behind the message at hand. */
struct message_reader {
    struct heap *heap;
    const struct message_kinds *kinds; /* lent */
    struct message_header header;      /* when all of it is there */
    size_t got;                        /* bytes of header and payload */
    uint8_t *payload;
    size_t room;
    uint8_t head[MESSAGE_HEADER_LEN];
};
void message_reader_init(struct message_reader *r, struct heap *heap, const struct message_kinds *kinds);
void message_reader_fini(struct message_reader *r);
/* Messages up to this length need no further memory. Before the first byte. */
bool MUST_CHECK message_reader_reserve(struct message_reader *r, size_t len);
/* Where the next bytes belong, and how many at most: at least one. */
size_t message_reader_wants(struct message_reader *r, uint8_t **target);
/* So many were put there. HEARTH_PENDING: go on. HEARTH_OK: header and payload are a message, until
 * message_reader_next. HEARTH_PROTOCOL, HEARTH_NO_MEMORY: the end, with what is wrong. */
int MUST_CHECK message_reader_got(struct message_reader *r, size_t len, const char **what);
/* The same for bytes that have been read: takes them from `in`, up to the end of one message. */
int MUST_CHECK message_reader_feed(struct message_reader *r, struct reader *in, const char **what);
void message_reader_next(struct message_reader *r);

/* Messages that wait for room in a connection, as bytes in a row, with at most one payload among them that
 * other queues share. Memory grows with what waits and goes when nothing does, but for a little. */
struct message_queue {
    struct heap *heap;
    size_t max; /* bytes of its own that may wait */
    uint8_t *bytes;
    size_t room, start, len;
    const uint8_t *shared; /* follows `shared_at` bytes of its own */
    size_t shared_at, shared_len;
};
void message_queue_init(struct message_queue *q, struct heap *heap, size_t max);
void message_queue_fini(struct message_queue *q);
void message_queue_clear(struct message_queue *q);                          /* what waits is dropped */
bool MUST_CHECK message_queue_reserve(struct message_queue *q, size_t len); /* bytes, headers included */
/* All of it or nothing: false without room or memory. */
bool MUST_CHECK message_queue_put(struct message_queue *q, uint8_t kind, const void *payload, size_t len);
/* A payload in two pieces, of which the second is lent until it is sent; one at a time. */
bool MUST_CHECK message_queue_put_shared(struct message_queue *q, uint8_t kind, const void *payload,
                                         size_t len, const void *shared, size_t shared_len);
size_t message_queue_len(const struct message_queue *q); /* bytes that wait */
/* The next of them that stand in a row, at most `max`: how many; 0: none. */
size_t message_queue_front(const struct message_queue *q, size_t max, const uint8_t **bytes);
void message_queue_sent(struct message_queue *q, size_t len); /* so many of those in front */
