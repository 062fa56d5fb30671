/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that machines of this room want sent: in order, bounded. Who drives the machines takes them out
 * and sends each on the connection to its addressee; where there is none, or no room, it is dropped: machines
 * say again what matters. */
#pragma once

#include "core/heap.h"
#include "core/list.h"
#include "security/node_key.h"

/* Numbers of docs/messages.md. Each machine has its own; it encodes and decodes their payloads. */
enum message_kind {
    MESSAGE_HELLO = 1,     /* cluster: first on every connection, both ways: what it is for, who speaks */
    MESSAGE_BEAT = 2,      /* consensus: I live; where I stand; answer */
    MESSAGE_VIEW = 3,      /* consensus: this was decided */
    MESSAGE_CALL = 4,      /* consensus: vote for me in this term */
    MESSAGE_VOTE = 5,      /* consensus: yes or no, and what I have accepted */
    MESSAGE_PROPOSE = 6,   /* consensus: let this be the next view */
    MESSAGE_ACCEPT = 7,    /* consensus: I have accepted it */
    MESSAGE_LEAVE = 8,     /* consensus: I go, on purpose */
    MESSAGE_DISSOLVE = 9,  /* consensus: our instance ends, the other one is there: go and join it */
    MESSAGE_REPORT = 10,   /* jobs, member to leader: what I request, what I take part in */
    MESSAGE_FORM = 11,     /* jobs, leader to member: you are in this formation */
    MESSAGE_BOARD = 12,    /* jobs, leader to all: which jobs are wished for and run */
    MESSAGE_PEERS = 13,    /* cluster: nodes of this cluster that I know, and where they are */
    MESSAGE_PROBE = 14,    /* cluster, leader to member: measure your way to that one */
    MESSAGE_MEASURED = 15, /* cluster, member to leader: what it came to */
    MESSAGE_LINKS = 16,    /* cluster, leader to all: the table of links */
    MESSAGE_LOAD = 17,     /* cluster, on a connection for a probe: bytes without meaning */
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

/* A message that has come, for the machine that it belongs to; lent for the call. */
struct received {
    const struct identity *from;
    uint8_t kind; /* enum message_kind */
    const void *payload;
    size_t len;
};

void outbox_init(struct outbox *box, struct heap *heap);
void outbox_fini(struct outbox *box);
void outbox_put(struct outbox *box, const struct identity *to, uint8_t kind, const void *payload, size_t len);
/* The oldest, the caller's to heap_free; NULL: none. */
struct outbox_message *outbox_take(struct outbox *box);
