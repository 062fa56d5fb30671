/* SPDX-License-Identifier: Apache-2.0 */
/* Measures which of two lanes to a peer is faster: each is tried for a short time, between all pairs at once
 * and in both directions, as collectives use them. A lane is a set of connections that carry bytes; its
 * transport is not known here. */
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
    int rank;                                     /* the peer's, for errors */
    bool decides;                                 /* we have the lower rank: our choice counts */
    struct race_lane lanes[TRANSPORT_RACE_LANES]; /* the first stays unless the second is better */
    int chosen;                                   /* out: the same at both ends */
};

struct transport_race_setup {
    struct heap *heap;
    struct transport_race_pair *pairs;
    int count;
    uint64_t span_ns; /* time for each lane */
    double margin;    /* factor by which the second must be faster: 1.05 */
    uint64_t deadline_ns;
    const struct stop *stop; /* ends it like the deadline, or NULL */
};

/* Blocks. All sent bytes have been read when it returns: the connections are unused again. HEARTH_TIMEOUT,
 * HEARTH_PEER_LOST, HEARTH_PROTOCOL: the connections are unusable. */
int MUST_CHECK transport_race_run(const struct transport_race_setup *setup, struct error *error);

/* A few bytes in each direction on an unused connection; either may be none. Blocks. HEARTH_TIMEOUT,
 * HEARTH_PEER_LOST. Members that exchange pairwise, each by rising rank of the peer, do not deadlock. */
struct race_talk {
    const uint8_t *say;
    size_t say_len;
    uint8_t *hear;
    size_t hear_len;
};
int MUST_CHECK transport_race_talk(struct conn *conn, const struct race_talk *words, uint64_t deadline_ns,
                                   const struct stop *stop);
