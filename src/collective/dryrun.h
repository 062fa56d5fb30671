/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the plans of all members against each other on virtual time, sizes only: for tests, `hearth sim` and
 * `hearth plan`. It keeps the same rules as step.c: canonical order, one accumulator a lane, `slots` frames
 * waiting per directed link. */
#pragma once

#include "collective/plan.h"

/* Called when a move is carried out, in up to three pieces, each shown as a move with some of its bits:
 * RECV_ACC, RECV_OUT, LOAD, RAW, OWN when its frame is taken; FENCE, STORE, COPY, IDENTITY when that is
 * worked in; SEND_* when the link has accepted the frame. From one member to another, sends and receives come
 * in the same order; empty frames are not sent, but their moves are shown. */
typedef void dry_observer(void *arg, int rank, uint64_t lane, const struct move *move);

struct dry_net {
    struct link_cost inside, across; /* a port moves one frame after the other, each way */
    const int *host;
    uint32_t slots;         /* per directed link, >= 1 */
    dry_observer *observer; /* NULL = none */
    void *observer_arg;
    bool (*progress)(void *arg, double share); /* NULL = none; ten times a second; false stops the run */
    void *progress_arg;
};

struct dry_result {
    double time_s;           /* until the last member is done */
    uint64_t messages;       /* all members together */
    uint64_t bytes_sent;     /* payload, all members together */
    uint64_t bytes_sent_max; /* payload, the busiest member */
    uint32_t hops; /* longest chain of messages, each of which could not go before the last had come */
};

/* plans[size]. HEARTH_OK; HEARTH_PROTOCOL with a text when the plans do not fit each other (deadlock, a
 * frame nobody takes, sizes that differ), naming rank, lane and move; HEARTH_NO_MEMORY; HEARTH_CANCELLED. */
int MUST_CHECK dryrun(const struct plan *plans, int size, const struct dry_net *net, struct heap *heap,
                      struct dry_result *result, struct error *error);
