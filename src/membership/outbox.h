/* SPDX-License-Identifier: Apache-2.0 */
/* Letters that machines of this room want sent: in order, bounded. Who drives the machines takes them out and
 * sends each on the connection to its addressee; where there is none, or no room, it is dropped: machines say
 * again what matters. */
#ifndef MEMBERSHIP_OUTBOX_H
#define MEMBERSHIP_OUTBOX_H

#include "core/heap.h"
#include "core/list.h"
#include "security/node_key.h"

/* Numbers of docs/letters.md. Each machine has its own; it encodes and decodes their payloads. */
enum letter_kind {
    LETTER_HELLO = 1,     /* home: first on every connection, both ways: what it is for, who speaks */
    LETTER_BEAT = 2,      /* assembly: I live; where I stand; answer */
    LETTER_CENSUS = 3,    /* assembly: this was decided */
    LETTER_CALL = 4,      /* assembly: vote for me in this term */
    LETTER_VOTE = 5,      /* assembly: yes or no, and what I have accepted */
    LETTER_PROPOSE = 6,   /* assembly: let this be the next census */
    LETTER_ACCEPT = 7,    /* assembly: I have accepted it */
    LETTER_LEAVE = 8,     /* assembly: I go, on purpose */
    LETTER_DISSOLVE = 9,  /* assembly: our instance ends, the other one is there: go and join it */
    LETTER_REPORT = 10,   /* jobs, member to leader: what I wish, what I take part in */
    LETTER_FORM = 11,     /* jobs, leader to member: you are in this formation */
    LETTER_BOARD = 12,    /* jobs, leader to all: which jobs are wished for and run */
    LETTER_PEERS = 13,    /* home: nodes of this cluster that I know, and where they are */
    LETTER_PROBE = 14,    /* home, leader to member: measure your way to that one */
    LETTER_MEASURED = 15, /* home, member to leader: what it came to */
    LETTER_LINKS = 16,    /* home, leader to all: the table of links */
    LETTER_LOAD = 17,     /* home, on a connection for a probe: bytes without meaning */
    LETTER_KIND_MAX = 17
};
#define LETTER_PAYLOAD_MAX 65536u
#define OUTBOX_MAX         4096 /* letters */

struct outbox {
    struct heap *heap;
    struct list letters;
    int count;
    uint64_t dropped; /* no memory, or too many */
};

struct outbox_letter {
    struct list item;
    struct identity to;
    uint8_t kind; /* enum letter_kind */
    size_t len;
    uint8_t payload[];
};

void outbox_init(struct outbox *box, struct heap *heap);
void outbox_fini(struct outbox *box);
void outbox_put(struct outbox *box, const struct identity *to, uint8_t kind, const void *payload, size_t len);
/* The oldest, the caller's to heap_free; NULL: none. */
struct outbox_letter *outbox_take(struct outbox *box);

#endif
