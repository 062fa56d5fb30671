/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what a way carries: short bursts on connections of their own, one at a time in the whole cluster,
 * as the leader orders; and passively, from what operations moved anyway.
 *
 *  - The leader goes round all ordered pairs, new ones first, then the oldest; a pair is measured again after
 *    `refresh` (10 min) or when its round trip changed twofold. Ways inside of a host are not measured.
 *    While a job runs only pairs that were never measured are, and not those of its members.
 *  - A probe sends for at most 200 ms or 8 MiB, whichever is first, and at least 256 KiB; the receiver counts
 *    what came between the first quarter and the end, so that neither the start of TCP nor a bucket that
 *    had filled up counts. Its result goes back on the same connection; then that is closed.
 *  - Share: the leader spaces probes so that on each link they take at most `share` (5 %) of the time, but
 *    for the first round of a new member, which takes what it takes, one after the other. */
#ifndef HOME_PROBES_H
#define HOME_PROBES_H

#include "home/fellows.h"
#include "membership/topology.h"

struct probes;

struct probes_setup {
    struct heap *heap;
    struct log log;
    struct fellows *fellows;
    struct outbox *outbox;
    struct identity self;
    double share;
    uint64_t refresh_ns;
    uint64_t now_ns;
};
int MUST_CHECK probes_open(const struct probes_setup *setup, struct probes **out);
void probes_close(struct probes *probes);

void probes_census(struct probes *probes, const struct census *census, bool leads, uint64_t now_ns);
/* Members that run a job: they are left alone. */
void probes_spare(struct probes *probes, const struct identity *members, int count);
void probes_round_trip(struct probes *probes, const struct identity *peer, uint64_t round_trip_ns,
                       uint32_t loss_ppm,
                       enum way_kind kind); /* of ours, told to the leader with the next MEASURED */
/* Passive: so many bytes left for that peer within that time while the line was full. */
void probes_traffic(struct probes *probes, const struct identity *peer, uint64_t bytes, uint64_t time_ns);
int MUST_CHECK probes_input(struct probes *probes, const struct identity *from, uint8_t kind,
                            const void *payload, size_t len, uint64_t now_ns,
                            const char **what); /* PROBE, MEASURED, LINKS */
void probes_take(struct probes *probes, struct tunnel *tunnel, const struct identity *from, bool dialled,
                 uint64_t now_ns); /* FELLOWS_PROBE: a connection, ours from now on */
void probes_pump(struct probes *probes, uint64_t now_ns);
size_t probes_waits(const struct probes *probes, struct sock_wait *items, size_t max, uint64_t *deadline_ns);
/* The table as the leader has it (the leader: its own), for the census that was told last. */
const struct topology *probes_links(const struct probes *probes, uint64_t *changed);
bool probes_settled(const struct probes *probes); /* leader: every pair was tried at least once */

#endif
