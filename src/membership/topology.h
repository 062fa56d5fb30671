/* SPDX-License-Identifier: Apache-2.0 */
/* The map: nodes and what the ways between them can do. Pure functions; the leader's table is what all use.
 */
#pragma once

#include "membership/view.h"

enum path_kind { PATH_UNKNOWN, PATH_SAME_HOST, PATH_WIRE, PATH_WIRELESS, PATH_TUNNEL, PATH_OTHER };
const char *path_kind_name(enum path_kind kind);

/* From one node to another; the way back is another one. */
struct path_measure {
    uint32_t mbit_x10; /* tenths of Mbit/s; 0: not measured */
    uint32_t round_trip_us;
    uint32_t loss_ppm; /* of beats */
    uint8_t kind;      /* enum path_kind */
    uint8_t quality;   /* how many probes are in it, at most 255; passive ones count too */
    uint16_t age_s;    /* since the last, when it was told; 65,535: that long or longer */
};

/* Measures by index in a view. ways[from * VIEW_MEMBERS_MAX + to]. */
struct topology {
    uint64_t instance, epoch; /* of the view */
    int size;
    struct path_measure paths[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX];
};
static inline struct path_measure *topology_path(struct topology *t, int from, int to)
{
    return &t->paths[from * VIEW_MEMBERS_MAX + to];
}
void topology_reset(struct topology *t, const struct view *view);
/* The members of another view: measures of those who stay are kept. */
void topology_follow(struct topology *t, const struct view *old, const struct view *view);
/* A new sample into what is known (bandwidth: the larger weight to the newer; round trip: as in health). */
void path_merge(struct path_measure *into, const struct path_measure *sample);

size_t topology_encode(const struct topology *t, void *target,
                       size_t size); /* MESSAGE_LINKS; 0: does not fit */
int MUST_CHECK topology_decode(struct topology *t, const void *source, size_t len); /* HEARTH_PROTOCOL */

/* What a group of members does best with. */
struct ring_order {
    int size;
    int order[VIEW_MEMBERS_MAX]; /* indices into the input, in the order of a ring: their new ranks */
    int site[VIEW_MEMBERS_MAX];  /* by place there: members joined by fast ways have one number, 0, 1, ... */
    int sites;
    uint32_t inside_mbit_x10,
        across_mbit_x10; /* slowest way used inside of a site, between sites; if none of those is measured,
                            slowest of all such ways; 0: unknown */
    /* Largest round trips of those. One that waited in a line that was full does not count where others show
     * that: between two sites the shortest of all their ways is taken, inside of one a way over a third. */
    uint32_t inside_us, across_us;
};
/* The best cyclic order; it uses the ways order[i] -> order[i + 1]. Members of one host stand together, and
 * those of one site; of all such orders it is one whose slowest way is as fast as can be, and of those the
 * one with the least sum of times to send a byte. Exact for up to 10, else found by exchanges and reversals
 * of stretches (3-opt, 2-opt). A way inside of a host is faster than all others. One that is not measured
 * counts as the way back, or as the median of those that are, or as 1 Gbit/s; if all are alike, the order is
 * that of hosts by their lowest member. The largest site comes first (of equal ones, that of the lowest
 * member), and no host or site is divided between the end and the beginning: the same for everybody who has
 * the table. `members`: indices into the topology, `count` of them. `hosts`: host_id of each. Sites: ways
 * whose bandwidth is less than half of the typical one inside separate them (single linkage over a gap in the
 * sorted bandwidths); one site if there is no such gap. */
void topology_arrange(const struct topology *t, const int *members, const uint64_t *hosts, int count,
                      struct ring_order *out);
/* The same for a group that goes round in `now` (indices into the input): that order is kept, unless the best
 * one changes host or site less often or its slowest way is faster by more than a tenth, which no noise is.
 * False: no way between two of its hosts is measured, and nothing is written. */
bool topology_rearrange(const struct topology *t, const int *members, const uint64_t *hosts, int count,
                        const int *now, struct ring_order *out);

/* What members of a group tell each other of it; docs/wire.md. A size of 0: nothing new. */
#define RING_ORDER_LEN 152
void ring_order_encode(const struct ring_order *order, uint8_t target[static RING_ORDER_LEN]);
/* HEARTH_PROTOCOL: not of so many members (0 is allowed), or `order` does not have each of them once, or
 * sites are not numbered in its order. */
int MUST_CHECK ring_order_decode(struct ring_order *order, const uint8_t source[static RING_ORDER_LEN],
                                 int size);

/* A line that holds up a group: of its members (indices into the topology, `count` of them) the one whose
 * best way to or from another host carries less than half of what the best ways of any other host do. -1:
 * there is none, or it cannot be told whose line it is: with two hosts, or where not enough was measured. */
struct slow_line {
    int place; /* index into `members` */
    uint32_t mbit_x10, next_mbit_x10;
};
struct slow_line topology_slow_line(const struct topology *t, const int *members, const uint64_t *hosts,
                                    int count);

/* The bottleneck of an order of indices into the topology, tenths of Mbit/s: for tests and `hearth topology`.
 * Ways of the kind PATH_SAME_HOST are no bottleneck; UINT32_MAX: there is none. */
uint32_t topology_bottleneck(const struct topology *t, const int *order, int count);
