/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what a way carries: short bursts on connections of their own, one at a time in the whole cluster,
 * as the leader orders; and passively, from what operations moved anyway.
 *
 *  - The leader goes round all ordered pairs, new ones first, then other addresses of members that have
 *    several, then the oldest (probe_schedule.h has the rules); a pair is measured again after `refresh`
 *    (10 min) or when its round trip changed twofold. Ways inside of a host are not measured, nor those of
 *    guests that do not measure. While a job runs only pairs that were never measured are, and not those of
 *    its members.
 *  - A probe sends for 200 ms (or 12 round trips, where these are longer) or 8 MiB, whichever is first, and
 *    at least 256 KiB; the receiver takes the median rate of what came between the first quarter and the end,
 *    so that neither the start of TCP nor a bucket that had filled up counts (probe_meter.c). Its result goes
 *    back on the same connection; then that is closed. At most 2 at a time in a node, 3 s each.
 *  - Share: the leader spaces probes so that they take at most `share` (5 %) of the time, but for the first
 *    round of a new member, which takes what it takes, one after the other.
 *  - Members tell the leader what they know of their ways with each result, and when that has changed, at
 *    most every 5 s. The leader tells all the table when it has changed, at most every second (with many
 *    members less often), and now and then anyway: messages may be lost. */
#pragma once

#include "cluster/peer_set.h"
#include "membership/topology.h"

struct probes;

#define PROBES_SHARE      0.05
#define PROBES_REFRESH_NS (600 * NS_PER_S)
#define PROBES_WAITS_MAX  2

struct probes_setup {
    struct heap *heap;
    struct log log;
    struct peer_set *peer_set;
    struct outbox *outbox;
    struct identity self;
    double share;        /* 0: PROBES_SHARE */
    uint64_t refresh_ns; /* 0: PROBES_REFRESH_NS */
    uint64_t now_ns;
};
int MUST_CHECK probes_open(const struct probes_setup *setup, struct probes **out);
void probes_close(struct probes *probes); /* NULL is allowed */

void probes_view(struct probes *probes, const struct view *view, bool leads, uint64_t now_ns);
/* Members that run a job: they are left alone. If we are one of them, a probe that we send ends at once. */
void probes_spare(struct probes *probes, const struct identity *members, int count, uint64_t now_ns);
void probes_round_trip(struct probes *probes, const struct identity *peer, uint64_t round_trip_ns,
                       uint32_t loss_ppm,
                       enum path_kind kind); /* of ours, told to the leader with the next MEASURED; kind
                                               PATH_UNKNOWN: as the last probe found it */
/* Passive: so many bytes left for that peer within that time while the line was full. */
void probes_traffic(struct probes *probes, const struct identity *peer, uint64_t bytes, uint64_t time_ns);
int MUST_CHECK probes_input(struct probes *probes, const struct received *message, uint64_t now_ns,
                            const char **what); /* PROBE, MEASURED, LINKS */
void probes_take(struct probes *probes, struct secure_stream *stream, const struct identity *from,
                 bool dialled,
                 uint64_t now_ns); /* PEER_PROBE: a connection, ours from now on; NULL: dialled in vain */
void probes_pump(struct probes *probes, uint64_t now_ns);
size_t probes_waits(const struct probes *probes, struct sock_wait *items, size_t max, uint64_t *deadline_ns);
/* The table as the leader has it (the leader: its own), for the view that was told last. */
const struct topology *probes_links(const struct probes *probes, uint64_t *changed);
/* The address with the highest rate that was measured from us to that member; false: none was. */
bool probes_best_addr(const struct probes *probes, const struct identity *peer, struct sock_addr *out);
bool probes_settled(const struct probes *probes);  /* leader: every pair was tried at least once */
bool probes_sketched(const struct probes *probes); /* leader: who is near to whom can be told */
