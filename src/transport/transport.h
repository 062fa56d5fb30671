/* SPDX-License-Identifier: Apache-2.0 */
/* What a transport supplies: an ordered stream of bytes to one peer. Framing, credits and queues are not its
 * business; they live once, in link.c. */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include <sys/types.h>
#include <sys/uio.h>

#include "core/types.h"

struct conn;

/* No slot is NULL. No slot blocks, and none calls back up. All are called by the holder of the baton. */
struct transport {
    const char *scheme; /* "mem" */
    /* Takes what fits now, in order: bytes taken, 0 = full (the node's bell rings when there is room), or
     * HEARTH_PEER_LOST once the connection is gone. */
    ssize_t (*send)(struct conn *conn, const struct iovec *pieces, int count);
    /* Gives what is there, at most len_max: bytes given, 0 = nothing yet (the node's bell rings when there
     * is), or HEARTH_PEER_LOST when the other end is gone and everything it sent has been given. */
    ssize_t (*recv)(struct conn *conn, void *target, size_t len_max);
    /* Ends the connection and frees it. What was sent before still arrives. */
    void (*close)(struct conn *conn);
};

struct conn {
    const struct transport *transport;
};

#endif
