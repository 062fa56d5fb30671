/* SPDX-License-Identifier: Apache-2.0 */
/* QUIC as a transport: one UDP socket for all peers, one connection for each of them, one stream for each
 * pipe of a link. A stream that is not read holds up nothing but itself.
 *
 * Everything is called by the holder of the baton; there are no threads. All streams share the descriptor, so
 * whoever reads or flushes one of them moves the packets of all. */
#pragma once

#include "core/error.h"
#include "core/heap.h"
#include "core/log.h"
#include "os/sock.h"
#include "os/stop.h"
#include "security/credentials.h"
#include "transport/link.h"
#include "transport/quic_engine.h"

struct quic;

bool quic_built(void); /* whether this library has it: HEARTH_QUIC of the build */

struct quic_setup {
    struct heap *heap;
    struct log log;
    const struct credentials *credentials; /* lent */
    struct sock_addr local;                /* where to take datagrams; port 0: any */
    size_t datagram_size;                  /* of those that are sent; 0: what the interface takes */
    double rate_bytes_per_s;               /* of the line, for the size of buffers; 0: not known */
    uint64_t idle_ns;                      /* a peer that says nothing for so long is lost; 0: never */
};
int MUST_CHECK quic_open(const struct quic_setup *setup, struct quic **out, struct error *error);
/* After all conns were closed. Waits until the peers have what was sent to them, or QUIC_LINGER_NS have
 * passed in which none of it arrived; NULL is allowed. */
void quic_close(struct quic *quic);
#define QUIC_LINGER_NS (2 * NS_PER_S) /* several times what a lost packet takes over a long way */

struct sock_addr quic_addr(const struct quic *quic); /* with the port that was given */

struct quic_peer {
    struct sock_addr addr;    /* where its datagrams go; not needed where it dials */
    struct identity identity; /* whom it must prove to be */
    bool dials;               /* we dial it */
    int streams;              /* pipes of the link, 1..LINK_PIPES_MAX; the same at both ends */
    uint64_t round_trip_ns;   /* as measured before; 0: not known */

    struct conn *conns[LINK_PIPES_MAX]; /* out: the caller's to close, before quic_close */
    int count;                          /* out: 0 if it could not be joined */
    struct error why;                   /* out: then */

    uint64_t again_ns; /* while joining: when it may be dialled again */
    bool over;         /* the same: it is given up */
};
/* Joins all peers; blocks until each is joined or given up. HEARTH_OK: all are; HEARTH_PEER_LOST: some are
 * not, see their `why`. May be called again for further peers; in between strangers are not heard. `stop`
 * (NULL: nobody asks) ends it as the deadline does. */
int MUST_CHECK quic_join(struct quic *quic, struct quic_peer *peers, int count, uint64_t deadline_ns,
                         const struct stop *stop, struct error *error);

/* What is known of a conn's connection: for status and tests. */
void quic_look(const struct conn *conn, struct quic_engine_state *state);
