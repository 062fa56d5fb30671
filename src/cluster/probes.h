/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rate of paths: by short bursts on extra connections, one at a time in the whole cluster, as
 * the leader orders; and passively, by the traffic of operations.
 *
 *  - The leader orders all pairs, new ones first, then other addresses of members that have several, then the
 *    oldest (probe_schedule.h has the rules); a pair is measured again after `refresh` (10 min) or when its
 *    round trip changed twofold. Paths inside a host are not measured, nor those of guests that do not
 *    measure. While a job runs only untried pairs are measured, and not those of its members.
 *  - A probe sends for 200 ms (or 12 round trips, if longer) or 8 MiB, whichever is first, and at least
 *    256 KiB; the receiver takes the median rate between the first quarter and the end, without the start of
 *    TCP and the burst of a full token bucket (probe_meter.c). It returns the result on the same connection,
 *    which is then closed. At most 2 at a time in a node, 3 s each.
 *  - Share: probes take at most `share` (5 %) of the time, except for the first round of a new member, which
 *    runs without pauses.
 *  - Members report their paths to the leader with each result, and after changes, at most every 5 s. The
 *    leader sends the table to all when it has changed, at most every second (less often with many members),
 *    and at long intervals anyway: messages may be lost. */
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
/* Members that run a job are not measured. If this node is one of them, its running probe ends at once. */
void probes_spare(struct probes *probes, const struct identity *members, int count, uint64_t now_ns);
/* Of a path of this node; the next MEASURED reports it. PATH_UNKNOWN: the kind of the last probe. */
void probes_round_trip(struct probes *probes, const struct identity *peer, uint64_t round_trip_ns,
                       uint32_t loss_ppm, enum path_kind kind);
/* Passive: bytes sent to the peer within that time while the line was full. */
void probes_traffic(struct probes *probes, const struct identity *peer, uint64_t bytes, uint64_t time_ns);
int MUST_CHECK probes_input(struct probes *probes, const struct received *message, uint64_t now_ns,
                            const char **what); /* PROBE, MEASURED, LINKS */
/* PEER_PROBE: takes the connection; NULL: dialling failed. */
void probes_take(struct probes *probes, struct secure_stream *stream, const struct identity *from,
                 bool dialled, uint64_t now_ns);
void probes_pump(struct probes *probes, uint64_t now_ns);
size_t probes_waits(const struct probes *probes, struct sock_wait *items, size_t max, uint64_t *deadline_ns);
/* The leader's table (at the leader: its own), for the view last set. */
const struct topology *probes_links(const struct probes *probes, uint64_t *changed);
/* The address of the member with the highest rate measured from this node; false: none. */
bool probes_best_addr(const struct probes *probes, const struct identity *peer, struct sock_addr *out);
bool probes_settled(const struct probes *probes);  /* leader: every pair was tried at least once */
bool probes_sketched(const struct probes *probes); /* leader: the sketch is complete */
