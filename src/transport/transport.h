/* SPDX-License-Identifier: Apache-2.0 */
/* What a transport supplies: an ordered stream of bytes to one peer. Framing, credits and queues are not its
 * business; they live once, in link.c. */
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include "core/types.h"

struct conn;

#define REFERENCE_LEN 16 /* bytes that stand for a payload which is not in the stream */

/* Where both ends see the same memory: payloads are lent out of the stream, and those in memory that the peer
 * can see (hearth_mem_alloc) travel as a reference. All slots are there. */
struct sharing {
    /* Whether a payload of this length could be lent now. */
    bool (*lends)(const struct conn *conn, size_t len);
    /* len once the next len bytes of the stream have all come; 0: not yet; HEARTH_PEER_LOST as in recv. */
    ssize_t (*ready)(struct conn *conn, size_t len);
    /* Then: these bytes where they stand; the stream goes on after them. */
    const void *(*borrow)(struct conn *conn, size_t len, uint64_t *token);
    /* Loans hold up the stream: the sender will have no room behind the oldest of them. */
    bool (*held_up)(const struct conn *conn);
    bool (*holds_up)(uint64_t token); /* whether this loan can */
    /* What the peer's reference stands for; NULL: nothing of ours, the peer breaks the protocol. */
    const void *(*look_up)(struct conn *conn, const uint8_t reference[REFERENCE_LEN], size_t len,
                           uint64_t *token);
    /* Whether what was lent is still what was meant: asked after reading. An operation that ends early may
     * take its memory back (withdraw) while a peer is reading it. */
    bool (*good)(const struct conn *conn, uint64_t token);
    /* Ends a loan of either kind, also after close. */
    void (*give_back)(struct conn *conn, uint64_t token);
    /* Writes a reference for memory that the peer can see: its number (0..63), or -1. The memory is the
     * peer's to read until `returned` has the number's bit. */
    int (*refer)(struct conn *conn, const void *memory, size_t len, uint8_t reference[REFERENCE_LEN]);
    void (*withdraw)(struct conn *conn, int number); /* the memory is going to change */
    /* Bits that the peer has set since the last look: references that came back, if it keeps the rules. */
    uint64_t (*returned)(struct conn *conn);
};

/* Where bytes are encrypted, or kept until the peer has them: some may have been taken and not have left yet.
 * All slots are there. */
struct holding {
    /* Moves what send took and what has not left: HEARTH_OK, nothing is held any more; HEARTH_PENDING, some
     * is: the descriptor shows room, or `due` comes; HEARTH_PEER_LOST. */
    int (*flush)(struct conn *conn);
    /* Bytes wait for room at the descriptor, or some were not taken for want of it. */
    bool (*holds)(const struct conn *conn);
    /* When it must be pumped in any case; NEVER_NS. 0, at once: something came since it was last asked for,
     * and the descriptor does not show it. */
    uint64_t (*due)(const struct conn *conn);
};

/* No slot is NULL, but `finish`, `sharing` and `holding` may be. No slot blocks, and none calls back up. All
 * are called by the holder of the baton. */
struct transport {
    const char *scheme; /* "mem", "tcp", "tls", "quic", "shm" */
    /* Takes what fits now, in order: bytes taken, 0 = full, or HEARTH_PEER_LOST once the connection is
     * gone. */
    ssize_t (*send)(struct conn *conn, const struct iovec *pieces, int count);
    /* Gives what is there, at most len_max: bytes given, 0 = nothing yet, or HEARTH_PEER_LOST when the other
     * end is gone and everything it sent has been given, or HEARTH_PROTOCOL when what came is not what the
     * other end sent. */
    ssize_t (*recv)(struct conn *conn, void *target, size_t len_max);
    /* Nothing more will be sent, and nothing is held: before it is closed it should be read until the other
     * end is gone, else what is on its way may be lost. NULL: it can be closed at once. */
    void (*finish)(struct conn *conn);
    /* Ends the connection and frees it. What was sent before still arrives (what is held, if it fits). */
    void (*close)(struct conn *conn);
    /* What to sleep on until bytes come, or without `sharing` room for bytes: -1 = nothing, a bell rings. */
    int (*descriptor)(const struct conn *conn);
    /* The descriptor was ready: look what it is. */
    void (*attend)(struct conn *conn);
    /* We are about to sleep at descriptors (and would like to hear of room), or are awake again: a peer that
     * moves bytes through memory must know. */
    void (*doze)(struct conn *conn, bool asleep, bool want_room);
    const struct sharing *sharing;
    const struct holding *holding;
};

struct conn {
    const struct transport *transport;
};

/* For transports that have nothing to do there. */
int conn_no_descriptor(const struct conn *conn);
void conn_attend_nothing(struct conn *conn);
void conn_doze_nothing(struct conn *conn, bool asleep, bool want_room);
