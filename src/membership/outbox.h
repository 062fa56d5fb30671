/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that the state machines of this room send: in order, bounded. Their driver takes each message and
 * sends it to its addressee. Without a connection or memory a message is dropped: the state machines repeat
 * what matters. */
#pragma once

#include "core/heap.h"
#include "core/list.h"
#include "security/node_key.h"

/* Numbers of docs/cluster_messages.md. Each state machine encodes and decodes its own kinds. */
enum message_kind {
    MESSAGE_HELLO = 1,     /* cluster: first on every connection, both directions: purpose and sender */
    MESSAGE_BEAT = 2,      /* consensus: heartbeat, with the sender's view */
    MESSAGE_VIEW = 3,      /* consensus: a decided view */
    MESSAGE_CALL = 4,      /* consensus: a call for votes in a term */
    MESSAGE_VOTE = 5,      /* consensus: the answer, with the accepted view */
    MESSAGE_PROPOSE = 6,   /* consensus: a proposal of the next view */
    MESSAGE_ACCEPT = 7,    /* consensus: the answer to a proposal */
    MESSAGE_LEAVE = 8,     /* consensus: the sender leaves on purpose */
    MESSAGE_DISSOLVE = 9,  /* consensus, leader to members: join that other instance */
    MESSAGE_REPORT = 10,   /* jobs, member to leader: requested jobs and current groups */
    MESSAGE_FORM = 11,     /* jobs, leader to member: a formation that includes it */
    MESSAGE_BOARD = 12,    /* jobs, leader to all: requested and running jobs */
    MESSAGE_PEERS = 13,    /* cluster: known nodes and their addresses */
    MESSAGE_PROBE = 14,    /* cluster, leader to member: measure the path to that member */
    MESSAGE_MEASURED = 15, /* cluster, member to leader: the result */
    MESSAGE_LINKS = 16,    /* cluster, leader to all: the table of paths */
    MESSAGE_LOAD = 17,     /* cluster, on a probe connection: bytes without meaning */
    MESSAGE_KIND_MAX = 17
};
#define MESSAGE_PAYLOAD_MAX 65536u
#define OUTBOX_MAX          4096 /* messages */

struct outbox {
    struct heap *heap;
    struct list messages;
    int count;
    uint64_t dropped; /* no memory, or too many */
};

struct outbox_message {
    struct list item;
    struct identity to;
    uint8_t kind; /* enum message_kind */
    size_t len;
    uint8_t payload[];
};

/* A received message; lent for the call. */
struct received {
    const struct identity *from;
    uint8_t kind; /* enum message_kind */
    const void *payload;
    size_t len;
};

void outbox_init(struct outbox *box, struct heap *heap);
void outbox_fini(struct outbox *box);
void outbox_put(struct outbox *box, const struct identity *to, uint8_t kind, const void *payload, size_t len);
/* The oldest; the caller frees it with heap_free. NULL: none. */
struct outbox_message *outbox_take(struct outbox *box);
