/* SPDX-License-Identifier: Apache-2.0 */
/* Which of two ways to a peer is the faster one: both are tried for a moment, one after the other, between
 * all pairs at once and in both directions, as collectives will use them. What a way is made of is not known
 * here: its connections carry bytes. */
#pragma once

#include "core/error.h"
#include "core/heap.h"
#include "os/stop.h"
#include "transport/link.h"

enum { TRANSPORT_RACE_LANES = 2 };

struct race_lane {
    struct conn *conns[LINK_PIPES_MAX];
    int count;
    double bytes_per_s; /* out: of both directions together, in the second half of the time */
};

struct transport_race_pair {
    int rank;     /* the peer's, for errors */
    bool decides; /* we have the lower rank: our choice counts */
    struct race_lane
        lanes[TRANSPORT_RACE_LANES]; /* the first is the one that stays unless the other is better */
    int chosen;                      /* out: at both ends the same */
};

struct transport_race_setup {
    struct heap *heap;
    struct transport_race_pair *pairs;
    int count;
    uint64_t span_ns; /* how long each way is tried */
    double margin;    /* the second must be so much faster: 1.05 */
    uint64_t deadline_ns;
    const struct stop *stop; /* when asked, the deadline has come; NULL: nobody asks */
};

/* Blocks. Whatever it sent has been read when it returns: the connections are as new. HEARTH_TIMEOUT,
 * HEARTH_PEER_LOST, HEARTH_PROTOCOL: they are of no use then. */
int MUST_CHECK transport_race_run(const struct transport_race_setup *setup, struct error *error);

/* A few bytes each way through a connection that carries nothing else yet; either may be none. Blocks.
 * HEARTH_TIMEOUT, HEARTH_PEER_LOST. If members talk pairwise one after the other, all by rising rank of the
 * peer, nobody waits for ever. */
struct race_talk {
    const uint8_t *say;
    size_t say_len;
    uint8_t *hear;
    size_t hear_len;
};
int MUST_CHECK transport_race_talk(struct conn *conn, const struct race_talk *words, uint64_t deadline_ns,
                                   const struct stop *stop);
