/* SPDX-License-Identifier: Apache-2.0 */
/* From a roster to connections: every pair of members joined by sockets, dialled from either end, through one
 * listening port (and one unix socket for members of the same host).
 *
 * A socket begins with a handshake, by which each end proves to be the member that the roster names, unless
 * all is plain. A greeting of fixed size follows: cluster, from, to, channel, instance of both. The side with
 * the lower rank decides which of several sockets for the same channel is kept and confirms it; only a
 * confirmed socket is used. docs/wire.md is the law. */
#pragma once

#include "bootstrap/roster.h"
#include "connect/listener.h"
#include "os/stop.h"

#define MESH_CHANNELS_MAX  9               /* control + 8 data */
#define MESH_CHANNELS_NEAR 2               /* control + 1 */
#define MESH_FAR_NS        (2 * NS_PER_MS) /* round trip from which on a pair has more of them */

enum mesh_kind { MESH_NONE, MESH_TCP, MESH_UNIX };

/* The sockets to one peer, confirmed. Unix: one channel, over which the transport hands its memory. */
struct mesh_peer {
    enum mesh_kind kind;
    int fds[MESH_CHANNELS_MAX];                 /* -1: none */
    struct records *records[MESH_CHANNELS_MAX]; /* of the same; NULL: plain, and always for unix */
    int count;                                  /* channels: the same at both ends */
    uint64_t round_trip_ns;                     /* of connect or greeting, the smallest seen */
    struct sock_addr addr;                      /* the peer's */
};

enum mesh_choice { MESH_AUTO, MESH_ONLY_TCP, MESH_ONLY_SHM };

struct mesh_setup {
    struct heap *heap;
    struct log log;
    const struct roster *roster;
    struct listener *listener;
    enum mesh_choice choice; /* AUTO: unix where host ids are equal and both have FEATURE_SHM; SHM: an error
                                where that is not so */
    int channels; /* TCP, 0: 2 (control + 1) where the round trip is below 2 ms, else one data connection per
                     512 KiB of the bandwidth-delay product, at most MESH_CHANNELS_MAX in all; the lower rank
                     decides */
    double rate_bytes_per_s;
    const struct sock_addr *from;          /* local address to dial from; NULL: any */
    const struct credentials *credentials; /* NULL: plain; lent until mesh_join returns */
    bool trust_network; /* plain: without it a TCP address that is not loopback is HEARTH_INVALID with a text
                           that names the option (trust_network, HEARTH_TRUST_NETWORK=1,
                           --i-trust-this-network) */
    uint64_t deadline_ns, connect_timeout_ns;
    const struct stop *stop; /* when asked, the deadline has come; may be NULL */
    uint32_t connect_retries;
    bool
        *unjoined; /* by rank: set for those that could not be joined, unless `stop` was asked; may be NULL */
};

/* Joins us to all other members: peers[size], our own place stays MESH_NONE. All addresses of a peer are
 * tried side by side (a small head start for the better one); the higher rank dials, the lower begins to dial
 * too if nothing has come after a second. Returns when we are joined to all, or with an error that names
 * peer, address and reason, after closing everything: at the deadline (HEARTH_TIMEOUT), or earlier when every
 * try has failed and the peer had its time to come (HEARTH_PEER_LOST). (That all others are joined to each
 * other too is found out by a first collective.) */
int MUST_CHECK mesh_join(const struct mesh_setup *setup, struct mesh_peer *peers, struct error *error);
void mesh_close(struct mesh_peer *peers, int size);
