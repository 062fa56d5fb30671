/* SPDX-License-Identifier: Apache-2.0 */
/* The topology: members and the measured paths between them. Pure functions; all members use the leader's
 * table. */
#pragma once

#include "membership/view.h"

enum path_kind { PATH_UNKNOWN, PATH_SAME_HOST, PATH_WIRE, PATH_WIRELESS, PATH_TUNNEL, PATH_OTHER };
const char *path_kind_name(enum path_kind kind);

/* From one node to another; the opposite direction has its own. */
struct path_measure {
    uint32_t mbit_x10; /* tenths of Mbit/s; 0: not measured */
    uint32_t round_trip_us;
    uint32_t loss_ppm; /* of heartbeats */
    uint8_t kind;      /* enum path_kind */
    uint8_t quality;   /* number of probes, active and passive, at most 255 */
    uint16_t age_s;    /* of the last probe when the table was sent; 65,535: that long or longer */
};

/* Measures by index in a view: paths[from * VIEW_MEMBERS_MAX + to]. */
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
/* Changes to another view: the measures of members that stay are kept. */
void topology_follow(struct topology *t, const struct view *old, const struct view *view);
/* Merges a new sample (bandwidth: the newer one has the larger weight; round trip: as in health). */
void path_merge(struct path_measure *into, const struct path_measure *sample);

size_t topology_encode(const struct topology *t, void *target,
                       size_t size); /* MESSAGE_LINKS; 0: does not fit */
int MUST_CHECK topology_decode(struct topology *t, const void *source, size_t len); /* HEARTH_PROTOCOL */

/* The ring order of a group. */
struct ring_order {
    int size;
    int order[VIEW_MEMBERS_MAX]; /* indices into the input, in the order of a ring: their new ranks */
    int site[VIEW_MEMBERS_MAX];  /* by place in `order`: members with fast paths share a number, 0, 1, ... */
    int sites;
    /* Slowest path of the ring inside a site, between sites; if none of those is measured, slowest of all
     * such paths; 0: unknown. */
    uint32_t inside_mbit_x10, across_mbit_x10;
    /* Largest round trips of those. One that waited in a full queue does not count: between two sites the
     * shortest of all their paths is taken, inside a site a shorter path over a third member. */
    uint32_t inside_us, across_us;
};
/* The best cyclic order; it uses the paths order[i] -> order[i + 1]. Members of one host stand together, and
 * those of one site; of all such orders it maximizes the speed of the slowest path, then minimizes the sum of
 * times to send a byte. Exact for up to 10 members, else local search (3-opt, 2-opt). A path inside a host is
 * faster than all others. One that is not measured counts as the opposite direction, or as the median of the
 * measured ones, or as 1 Gbit/s; if all are equal, the order is that of hosts by their lowest member. The
 * largest site comes first (of equal ones, that of the lowest member), and no host or site is split between
 * the end and the beginning: the same table gives the same order. `members`: indices into the topology,
 * `count` of them. `hosts`: host_id of each. Sites are separated by paths with less than half of the typical
 * bandwidth inside (single linkage over a gap in the sorted bandwidths); without such a gap there is one
 * site. */
void topology_arrange(const struct topology *t, const int *members, const uint64_t *hosts, int count,
                      struct ring_order *out);
/* The same for a group with the order `now` (indices into the input), which is kept unless the best one
 * changes host or site less often or its slowest path is faster by more than a tenth (more than noise).
 * False: no path between two of its hosts is measured, and nothing is written. */
bool topology_rearrange(const struct topology *t, const int *members, const uint64_t *hosts, int count,
                        const int *now, struct ring_order *out);

/* The message between members of a group; docs/wire.md. A size of 0: nothing new. */
#define RING_ORDER_LEN 152
void ring_order_encode(const struct ring_order *order, uint8_t target[static RING_ORDER_LEN]);
/* HEARTH_PROTOCOL: `size` differs (0 is allowed), or `order` does not have each member once, or sites are not
 * numbered in its order. */
int MUST_CHECK ring_order_decode(struct ring_order *order, const uint8_t source[static RING_ORDER_LEN],
                                 int size);

/* A line that slows down a group: of its members (indices into the topology, `count` of them) the one whose
 * best path to or from another host has less than half the speed of the best paths of every other host. -1:
 * none, or not known whose line it is: with two hosts, or too few measures. */
struct slow_line {
    int place; /* index into `members` */
    uint32_t mbit_x10, next_mbit_x10;
};
struct slow_line topology_slow_line(const struct topology *t, const int *members, const uint64_t *hosts,
                                    int count);

/* The slowest path of an order of indices into the topology, tenths of Mbit/s: for tests and `hearth
 * topology`. Paths of the kind PATH_SAME_HOST do not count; UINT32_MAX: none, or nothing is measured. */
uint32_t topology_bottleneck(const struct topology *t, const int *order, int count);
