/* SPDX-License-Identifier: Apache-2.0 */
/* Two QUIC endpoints in one process, and a relay between them that does what networks do. */
#pragma once

#include "core/prng.h"
#include "os/datagram.h"
#include "os/thread.h"
#include "transport/quic_line.h"

#define PATIENCE_NS (30 * NS_PER_S) /* against hangs only */

/* What the relay does to a datagram, in thousandths. */
struct relay_habits {
    unsigned drops, doubles, delays, spoils; /* spoils: a changed copy goes before it */
    size_t larger_than;                      /* larger ones never arrive; 0: no limit */
};

struct relay {
    struct datagram_port port;
    struct sock_addr addr, ends[2];
    struct relay_habits habits;
    struct prng prng;
    struct thread thread;
    _Atomic(bool) stop, dead; /* dead: nothing passes */
    uint8_t held[DATAGRAM_BATCH];
    size_t held_len;
    int held_to;
    _Atomic(unsigned) passed;
};
void port_open(struct datagram_port *port, struct sock_addr *bound); /* on loopback; bound may be NULL */
void relay_begin(struct relay *relay, const struct relay_habits *habits, uint64_t seed);
void relay_end(struct relay *relay);

struct quic_side {
    struct heap heap;
    struct credentials *credentials;
    struct quic *quic;
    struct quic_peer peer; /* the other one */
    int status;
    struct error error;
    struct thread thread;
};

struct quic_pair {
    struct quic_side sides[2]; /* 1 dials */
    struct relay *relay;       /* NULL: they talk to each other */
};

struct pair_options {
    int streams; /* 0: 2 */
    size_t datagram_size;
    uint64_t idle_ns;
    uint8_t secrets[2]; /* the byte that each one's consists of */
    struct relay *relay;
    bool stranger;       /* who dials expects another key */
    bool other_instance; /* or another process */
    uint64_t join_ns;    /* patience; 0: PATIENCE_NS */
};
/* Credentials of a new node on this heap. */
struct credentials *pair_node(struct heap *heap, uint8_t secret, uint64_t instance);
void quic_pair_open(struct quic_pair *pair, const struct pair_options *options);
/* Both join, each in a thread of its own. */
void pair_join(struct quic_pair *pair, const struct pair_options *options);
void pair_open_joined(struct quic_pair *pair,
                      const struct pair_options *options); /* both, and it must succeed */
void quic_pair_close(struct quic_pair *pair);              /* nothing is left on the heaps */
void pair_close_side(struct quic_pair *pair, int side);

/* Sleeps as a node does, until one of both sides must be pumped. */
void pair_rest(struct quic_pair *pair);

/* ---- bytes ---- */

void fill_bytes(uint8_t *bytes, size_t len, uint64_t seed);

/* A conn that sends and receives so many bytes, and checks them. */
struct traffic {
    struct conn *conn;
    uint64_t seed_out, seed_in;
    size_t out, in; /* all together */
    size_t sent, got;
    size_t piece; /* bytes at once; 0: any */
    ssize_t lost; /* what it said when it was */
};
bool traffic_move(struct traffic *traffic); /* true: something moved */
bool traffic_done(const struct traffic *traffic);
/* Moves all of them until they are done, resting in between. */
void traffic_run(struct quic_pair *pair, struct traffic *list, int count);
