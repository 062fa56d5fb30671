/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams over one UDP socket: many at once where the system can (segmentation offload, recvmmsg), never
 * fragmented, and with reports of closed ports. */
#pragma once

#include "os/sock.h"

#define DATAGRAM_BATCH     65507u /* bytes that one call sends or receives at most */
#define DATAGRAM_LIST_MAX  16     /* batches that one call receives at most */
#define DATAGRAM_SIZE_SAFE 1200u  /* a datagram of this size passes everywhere: QUIC demands it */

struct datagram_port {
    int fd;        /* -1: closed */
    bool mapped;   /* an IPv6 socket: IPv4 goes through it in IPv6 clothes */
    bool segments; /* the system cuts a batch into datagrams */
    bool mishaps;  /* it has told of datagrams that did not arrive: see datagram_refused */
};

/* Non-blocking, close-on-exec, closed in forked children. buffer_bytes is a request, for both directions.
 * `bound` has the port that was given when it was 0. HEARTH_LIMIT: the address is in use. */
int MUST_CHECK datagram_open(const struct sock_addr *local, int buffer_bytes, struct datagram_port *port,
                             struct sock_addr *bound, struct error *error);
void datagram_close(struct datagram_port *port);

/* The largest datagram (bytes of payload) that fits the interface towards this address. */
size_t datagram_size(const struct sock_addr *to);

/* Sends len bytes (at most DATAGRAM_BATCH) as datagrams of `size` bytes, the last one may be shorter.
 * HEARTH_OK: gone, or lost as datagrams may be; HEARTH_PENDING: no room now, nothing was sent; HEARTH_LIMIT:
 * larger than the way there allows, all lost. */
int MUST_CHECK datagram_send(struct datagram_port *port, const struct sock_addr *to, const void *bytes,
                             size_t len, size_t size);

/* What came in a row from one sender: datagrams of `size` bytes, the last one may be shorter. */
struct datagrams {
    uint8_t *bytes; /* in: room for DATAGRAM_BATCH */
    size_t len, size;
    struct sock_addr from;
};
/* How many of the list (count: at most DATAGRAM_LIST_MAX) were filled; fewer than count: no more is there. */
int datagram_recv(struct datagram_port *port, struct datagrams *list, int count);

/* One of our datagrams went to a closed port. Anyone can forge such a report, but not what it quotes. */
#define DATAGRAM_QUOTE 64
struct datagram_refusal {
    struct sock_addr to;
    uint8_t quote[DATAGRAM_QUOTE]; /* the beginning of the datagram */
    size_t len;
};
/* The next of them, to be asked where there are `mishaps`; false: no more. Other mishaps are read and
 * dropped: they must be read, or the descriptor stays ready. */
bool datagram_refused(struct datagram_port *port, struct datagram_refusal *refusal);
