/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as bytes: their header, HELLO, and a reader that puts messages together from whatever pieces come.
 * docs/messages.md, is the law. No I/O. */
#ifndef CLUSTER_MESSAGE_READER_H
#define CLUSTER_MESSAGE_READER_H

#include "core/heap.h"
#include "membership/outbox.h"
#include "membership/view.h"

#define MESSAGE_MAGIC      0x4c48u /* "HL" */
#define MESSAGE_VERSION    1u
#define MESSAGE_HEADER_LEN 8u

struct message_header {
    uint8_t kind; /* enum message_kind */
    uint32_t len; /* of the payload */
};
void message_header_put(uint8_t target[static MESSAGE_HEADER_LEN], uint8_t kind, size_t len);
/* HEARTH_PROTOCOL, with what is wrong. */
int MUST_CHECK message_header_get(struct message_header *header,
                                  const uint8_t source[static MESSAGE_HEADER_LEN], const char **what);

enum hello_purpose { HELLO_MESSAGES = 1, HELLO_PROBE = 2 };
#define MESSAGE_HELLO_MAX (12u + PEER_INFO_LEN_MAX)
struct message_hello {
    uint16_t version_min, version_max;
    uint8_t purpose;
    uint32_t serial; /* counts the hellos of a process */
    struct peer_info info;
};
/* Bytes; `target` has MESSAGE_HELLO_MAX. */
size_t message_hello_encode(const struct message_hello *hello, uint8_t *target);
int MUST_CHECK message_hello_decode(struct message_hello *hello, const void *source, size_t len,
                                    const char **what);

/* Gives one message after the other; never wants bytes behind the one at hand. */
struct message_reader {
    struct heap *heap;
    uint8_t head[MESSAGE_HEADER_LEN];
    struct message_header header; /* when the head is there */
    size_t got;                   /* bytes of head and payload */
    uint8_t *payload;
    size_t room;
};
void message_reader_init(struct message_reader *r, struct heap *heap);
void message_reader_fini(struct message_reader *r);
/* Where the next bytes belong, and how many at most: at least one. */
size_t message_reader_wants(struct message_reader *r, uint8_t **target);
/* So many were put there. HEARTH_PENDING: go on. HEARTH_OK: header and payload are a message, until
 * message_reader_next. HEARTH_PROTOCOL, HEARTH_NO_MEMORY: the end, with what is wrong. */
int MUST_CHECK message_reader_got(struct message_reader *r, size_t len, const char **what);
void message_reader_next(struct message_reader *r);

#endif
